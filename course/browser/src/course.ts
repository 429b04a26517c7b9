/** What every page loads: small, and it fetches an editor or Python only where there is an exercise to work on. */

import { CourseExercise } from "./element";
import { definePicture } from "./pictures/picture";
import { CourseQuiz } from "./quiz";
import { nameTheTheme } from "./theme-names";

if (!customElements.get("course-exercise")) customElements.define("course-exercise", CourseExercise);
if (!customElements.get("course-quiz")) customElements.define("course-quiz", CourseQuiz);
definePicture("course-waste", () => import("./pictures/waste"));
definePicture("course-blocks", () => import("./pictures/blocks"));
nameTheTheme();
