"""The mouse of a reader, who looks before they click."""

from playwright.sync_api import Locator

# An editor draws the lines in sight and guesses the height of the others: what stands below it moves when a scroll
# brings more of it into sight. A press and a release on two different elements are no click.
IS_STILL = """async (element) => {
    for (let [all, still, before] = [0, 0, null]; still < 5 && all < 200; all++) {
        await new Promise(requestAnimationFrame);
        const { x, y } = element.getBoundingClientRect();
        still = before?.x === x && before?.y === y ? still + 1 : 0;
        before = { x, y };
    }
}"""


def click(target: Locator) -> None:
    """Bring `target` into sight, wait until it stays where it is, and click.

    What moves for 200 frames is clicked all the same: something on the page is playing.
    """
    target.page.bring_to_front()  # a tab at the back draws a frame a second
    target.scroll_into_view_if_needed()
    target.evaluate(IS_STILL)
    target.click()
