/** What every page loads: small, and it fetches an editor or Python only where there is an exercise to work on. */

import { CourseExercise } from "./element";
import { CourseProgress, showInNavigation } from "./progress";
import { CourseWork } from "./transfer";

const elements = { "course-exercise": CourseExercise, "course-progress": CourseProgress, "course-work": CourseWork };
for (const [name, element] of Object.entries(elements)) {
  if (!customElements.get(name)) customElements.define(name, element);
}
showInNavigation();
