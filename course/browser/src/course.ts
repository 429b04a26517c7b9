/** What every page loads: small, and it fetches an editor or Python only where there is an exercise to work on. */

import { CourseExercise } from "./element";
import { definePicture } from "./pictures/picture";
import { CourseProgress, showInNavigation } from "./progress";
import { CourseQuiz } from "./quiz";
import { nameTheTheme } from "./theme-names";
import { CourseWork } from "./transfer";

const elements = {
  "course-exercise": CourseExercise,
  "course-progress": CourseProgress,
  "course-quiz": CourseQuiz,
  "course-work": CourseWork,
};
for (const [name, element] of Object.entries(elements)) {
  if (!customElements.get(name)) customElements.define(name, element);
}
definePicture("course-waste", () => import("./pictures/waste"));
definePicture("course-blocks", () => import("./pictures/blocks"));
definePicture("course-softmax", () => import("./pictures/softmax"));
definePicture("course-timeline", () => import("./pictures/batching"));
definePicture("course-tiles", () => import("./pictures/tiles"));
definePicture("course-divergence", () => import("./pictures/divergence"));
definePicture("course-int8", () => import("./pictures/int8"));
definePicture("course-engine", () => import("./engine/engine"));
nameTheTheme();
showInNavigation();
