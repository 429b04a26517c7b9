"""The course's machinery: exercises, judge and browser front end."""
