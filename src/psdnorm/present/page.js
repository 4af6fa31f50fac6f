"use strict";
/* Tables sorted by their column headers; subjects looked up in the data at the end of the page;
   tables that take keyboard focus only where they scroll. */
(() => {
  const MOST_ROWS = 200;
  const collator = new Intl.Collator("en", { numeric: true });

  /* missing values come last, whatever the sort order of the others */
  function compare(a, b, falling) {
    if (a === null || b === null) return (a === null) - (b === null);
    const order = typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b);
    return falling ? -order : order;
  }

  function makeSortable(table, sort) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      if (head.textContent.trim() === "") return; /* a button must have a name */
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const falling = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        sort(column, falling);
      });
    });
  }

  function cellKey(row, column, isNumeric) {
    const cell = row.cells[column];
    if (cell === undefined) return null;
    if (isNumeric) return "v" in cell.dataset ? Number(cell.dataset.v) : null;
    return cell.textContent === "–" || cell.textContent === "" ? null : cell.textContent;
  }

  function sortBody(body, column, falling) {
    const rows = [...body.rows];
    const isNumeric = rows.some((row) => row.cells[column] && "v" in row.cells[column].dataset);
    const keyed = rows.map((row) => [cellKey(row, column, isNumeric), row]);
    keyed.sort((one, other) => compare(one[0], other[0], falling));
    body.append(...keyed.map((pair) => pair[1]));
  }

  function element(name, text, attributes = {}) {
    const made = document.createElement(name);
    made.textContent = text;
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    return made;
  }

  function shown(value, kind) {
    if (value === null) return "–";
    if (kind === "percent") return (value / 100).toFixed(2);
    if (kind === "gain") return (value > 0 ? "+" : value < 0 ? "−" : "") + (Math.abs(value) / 100).toFixed(2);
    return String(value);
  }

  /* rows of one cohort: the first of those that match the search, in the order asked for */
  function browse(place, { columns, rows, by }) {
    const table = place.querySelector("table");
    const status = place.querySelector(".status");
    const input = place.querySelector("input");
    let order = [by, false];
    const draw = () => {
      const wanted = input.value.trim().toLowerCase();
      const kept = rows.filter((row) => row[0].toLowerCase().includes(wanted));
      kept.sort((one, other) => compare(one[order[0]], other[order[0]], order[1]));
      const body = document.createElement("tbody");
      for (const row of kept.slice(0, MOST_ROWS)) {
        const line = body.insertRow();
        const name = element("th", "", { scope: "row" });
        name.append(element("bdi", row[0]));
        line.append(name);
        for (let n = 1; n < columns.length; n += 1) {
          line.append(element("td", shown(row[n], columns[n][1])));
        }
      }
      table.tBodies[0].replaceWith(body);
      const number = Math.min(kept.length, MOST_ROWS).toLocaleString("en");
      const sorted = `${columns[order[0]][0]}, ${order[1] ? "falling" : "rising"}`;
      status.textContent = `Shows ${number} of ${rows.length.toLocaleString("en")} subjects`
        + (wanted ? ` (${kept.length.toLocaleString("en")} fit)` : "") + `, by ${sorted}.`;
    };
    makeSortable(table, (column, falling) => { order = [column, falling]; draw(); });
    table.tHead.rows[0].cells[order[0]].setAttribute("aria-sort", "ascending");
    input.addEventListener("input", draw);
    place.querySelector(".browser").hidden = false;
    draw();
  }

  const sizes = new ResizeObserver((changes) => {
    new Set(changes.map((change) => change.target.closest(".scroll"))).forEach((region) => {
      if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
      else region.removeAttribute("tabindex");
    });
  });
  document.querySelectorAll(".scroll").forEach((region) => {
    sizes.observe(region);
    sizes.observe(region.firstElementChild);
  });

  document.querySelectorAll("table.sortable").forEach((table) => {
    makeSortable(table, (column, falling) => {
      [...table.tBodies].filter((body) => !body.classList.contains("means"))
        .forEach((body) => sortBody(body, column, falling));
    });
  });

  document.querySelectorAll("[data-subjects]").forEach((place) => {
    const source = document.getElementById(place.dataset.subjects);
    const around = place.closest("details");
    const open = () => browse(place, JSON.parse(source.textContent));
    if (around === null || around.open) open();
    else around.addEventListener("toggle", open, { once: true });
  });
})();
