/** What every page loads: small, and it fetches an editor or Python only where there is an exercise to work on. */

import { CourseExercise } from "./element";

if (!customElements.get("course-exercise")) customElements.define("course-exercise", CourseExercise);
