"use strict";

// The table of a job's goals: searched, filtered, sorted, grouped, with the columns of the reader's choice. The
// address keeps the choice, so that a link shows the same and a refresh changes nothing.
(() => {
  const FIELDS = ["search", "state", "group", "sort", "columns"];

  function choice() {
    const query = new URLSearchParams(location.search);
    return Object.fromEntries(FIELDS.map((field) => [field, query.get(field) ?? ""]));
  }

  function choose(changes) {
    const query = new URLSearchParams(location.search);
    for (const [field, value] of Object.entries(changes)) {
      if (value) query.set(field, value);
      else query.delete(field);
    }
    history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}${location.hash}`);
    arrange();
  }

  const headings = () => [...document.querySelectorAll("#goals thead th")];
  const text = (row, index) => row.cells[index].querySelector("a, .state")?.textContent ?? row.cells[index].textContent;

  // The values of a column: numbers where there are any, and nothing for a figure that is unknown.
  function values(rows, index) {
    const numbers = rows.some((row) => row.cells[index].dataset.order !== undefined);
    return new Map(rows.map((row) => {
      const { order } = row.cells[index].dataset;
      return [row, numbers ? (order === undefined ? null : Number(order)) : text(row, index)];
    }));
  }

  // Sorts the rows by the key of a column, "-" for descending; unknown figures are always last.
  function sorted(rows, sort) {
    const index = headings().findIndex((heading) => heading.dataset.key === sort.replace(/^-/, ""));
    const inOrder = [...rows].sort((one, other) => one.dataset.place - other.dataset.place);
    if (index < 0) return inOrder;
    const of = values(rows, index);
    const sign = sort.startsWith("-") ? -1 : 1;
    return inOrder.sort((one, other) => {
      const [a, b] = [of.get(one), of.get(other)];
      if (a === null || b === null) return (a === null) - (b === null);
      return sign * (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
    });
  }

  // Returns the rows of a group, below a row that names it.
  function groupBody(name, rows, width) {
    const body = Object.assign(document.createElement("tbody"), { className: "goals" });
    const head = body.insertRow();
    head.className = "group";
    const met = rows.filter((row) => row.querySelector(".state.met")).length;
    const cell = Object.assign(document.createElement("th"), { scope: "rowgroup", colSpan: width });
    cell.textContent = `${name}: ${met} of ${rows.length} met`;
    head.append(cell);
    body.append(...rows);
    return body;
  }

  function showColumns(chosen) {
    const table = document.querySelector("#goals table");
    headings().forEach((heading, index) => {
      heading.dataset.shown ??= heading.hidden ? "" : "yes";
      const { key, shown } = heading.dataset;
      const hidden = !(chosen ? index < 3 || chosen.split(",").includes(key) : shown);
      if (heading.hidden === hidden) return;
      for (const row of table.rows) if (row.cells[index]) row.cells[index].hidden = hidden;
    });
  }

  function arrange() {
    const table = document.querySelector("#goals table");
    const form = document.getElementById("arrange");
    if (!table || !form) return;
    const { search, state, group, sort, columns } = choice();
    showColumns(columns);
    const rows = [...table.querySelectorAll("tbody.goals tr:not(.group)")];
    rows.forEach((row, place) => { row.dataset.place ??= place; });
    const words = search.toLowerCase().split(" ").filter(Boolean);
    for (const row of rows) {
      const all = row.textContent.toLowerCase();
      row.hidden = !((!state || row.querySelector(`.state.${CSS.escape(state)}`)) && words.every((word) => all.includes(word)));
    }
    const ordered = sorted(rows, sort);
    const index = headings().findIndex((heading) => heading.dataset.key === group);
    const bodies = new Map();
    for (const row of ordered) {
      const name = group && index >= 0 ? text(row, index) : "";
      if (!bodies.has(name)) bodies.set(name, []);
      bodies.get(name).push(row);
    }
    const made = [...bodies].map(([name, own]) => {
      const body = groupBody(name, own.filter((row) => !row.hidden), headings().length);
      body.append(...own.filter((row) => row.hidden));
      if (!name) body.rows[0].remove();
      else body.hidden = own.every((row) => row.hidden);
      return body;
    });
    table.querySelectorAll("tbody.goals").forEach((body) => body.remove());
    table.append(...made);
    for (const heading of headings()) {
      const { key } = heading.dataset;
      if (sort.replace(/^-/, "") === key) heading.ariaSort = sort.startsWith("-") ? "descending" : "ascending";
      else heading.ariaSort = null;
    }
    const [some, all] = [rows.filter((row) => !row.hidden), rows].map((these) => these.length.toLocaleString("en"));
    form.elements.shown.value = `${some} of ${all} goals`;
    if (form.elements.search !== document.activeElement) form.elements.search.value = search;
    form.elements.state.value = state;
    form.elements.group.value = group;
    for (const box of form.querySelectorAll("[type=checkbox]")) {
      box.checked = !headings().find((heading) => heading.dataset.key === box.value).hidden;
    }
  }

  // Makes the form and the headings work; the page is replaced when its job changes.
  window.arrangeGoals = function arrangeGoals() {
    const form = document.getElementById("arrange");
    if (!form) return;
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", ({ target }) => {
      if (target.type !== "checkbox") choose({ [target.name]: target.value });
      else choose({ columns: [...form.querySelectorAll(":checked[type=checkbox]")].map((box) => box.value).join(",") || "none" });
    });
    for (const heading of headings()) {
      const button = Object.assign(document.createElement("button"), {
        type: "button", name: `sort-${heading.dataset.key}`, textContent: heading.textContent,
      });
      button.addEventListener("click", () => {
        const { key } = heading.dataset;
        const { sort } = choice();
        choose({ sort: sort === key ? `-${key}` : sort === `-${key}` ? "" : key });
      });
      heading.replaceChildren(button);
    }
    arrange();
  };

  window.arrangeGoals();
})();
