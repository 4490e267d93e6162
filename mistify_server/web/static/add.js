"use strict";

// The form of a goal: puts it into the config, in place of the example or after the other goals.
(() => {
  const goal = document.getElementById("goal");
  const text = document.getElementById("config");

  function added(fields) {
    const { id, axis, limit, hardware, common } = Object.fromEntries(new FormData(fields));
    return {
      id: id.trim(),
      ...(common ? JSON.parse(common) : {}),
      ...(hardware.trim() ? { hardware: hardware.trim() } : {}),
      adaptation_goal: { [axis]: limit.trim() },
    };
  }

  // Returns the text of goals with one more at the end of the list.
  function extended(goals, one) {
    const end = goals.lastIndexOf("]");
    if (end < 0) return goals.trim() ? `${goals.trimEnd()}\n${one}\n` : `[\n${one}\n]\n`;  // the check names what is missing
    const before = goals.slice(0, end).trimEnd();
    const comma = before.endsWith("[") || before.endsWith(",") ? "" : ",";
    return `${before}${comma}\n${one}\n${goals.slice(end)}`;
  }

  goal.addEventListener("submit", (event) => {
    event.preventDefault();
    const one = JSON.stringify(added(goal), null, 2).replace(/^/gm, "  ");
    text.value = extended(text.value === text.defaultValue ? "" : text.value, one);
    text.dispatchEvent(new Event("input"));
    goal.elements.id.value = "";
    goal.elements.id.focus();
  });
  goal.hidden = false;
})();
