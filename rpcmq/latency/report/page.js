// Sorting and filtering; without it the tables are complete, in the order that matters most.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const value = cell.dataset.v;
    if (value === undefined) return cell.textContent.trim().toLowerCase();
    return value === "" ? null : Number(value);
  };
  heads.forEach((head, column) => {
    if (head.classList.contains("fixed")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const numeric = head.classList.contains("n");
      const down = head.ariaSort ? head.ariaSort === "ascending" : numeric;
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => [valueOf(row, column), row]);
      rows.sort(([a], [b]) => {
        if (a === b) return 0;
        if (a === null) return 1;
        if (b === null) return -1;
        return (a < b ? -1 : 1) * (down ? -1 : 1);
      });
      body.append(...rows.map(([, row]) => row));
    });
  });
  if (table.dataset.filter) {
    const box = document.createElement("p");
    const label = document.createElement("label");
    const input = document.createElement("input");
    const shown = document.createElement("output");
    box.className = "filter";
    input.type = "search";
    label.append("Filter ", input);
    box.append(label, shown);
    table.parentElement.before(box);
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase().split(/\s+/);
      let count = 0;
      for (const row of body.rows) {
        const text = row.cells[0].textContent.toLowerCase();
        row.hidden = !wanted.every((word) => text.includes(word));
        count += !row.hidden;
      }
      shown.textContent = input.value.trim() ? `${count} of ${body.rows.length}` : "";
    });
  }
}
