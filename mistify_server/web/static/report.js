"use strict";

// The plotting library is embedded as compressed text, which is less than half its size.
(async () => {
  const packed = document.getElementById("packed-plotly");
  if (!packed || !window.DecompressionStream) return;
  const bytes = Uint8Array.from(atob(packed.textContent), (character) => character.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
  window.drawPlots();
})();

// Filters the goals by text and state. A link to a hidden goal resets the filter.
const filter = document.getElementById("filter");
if (filter) {
  const [words, state, count] = filter.elements;
  const show = () => {
    let shown = 0;
    for (const goal of document.querySelectorAll(".goal")) {
      const wanted = !state.value || goal.dataset.state === state.value;
      goal.hidden = !(wanted && goal.textContent.toLowerCase().includes(words.value.toLowerCase()));
      if (!goal.hidden) shown += 1;
    }
    count.value = `${shown} shown`;
  };
  filter.addEventListener("input", show);
  filter.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", () => {
    const goal = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!goal?.hidden) return;
    filter.reset();
    show();
    goal.scrollIntoView();
  });
}
