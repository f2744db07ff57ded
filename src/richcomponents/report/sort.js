// A click on a column's title sorts its table: numbers by value, missing ones last, names by letter.
for (const title of document.querySelectorAll("table.sortable th button")) {
  title.addEventListener("click", () => {
    const head = title.closest("th"), body = title.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const cell = (row) => row.cells[head.cellIndex], number = (row) => parseFloat(cell(row).dataset.value);
    const compare = (a, b) => {
      const x = number(a), y = number(b);
      if (Number.isNaN(x) && Number.isNaN(y))
        return (down ? -1 : 1) * cell(a).textContent.localeCompare(cell(b).textContent);
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
      return down ? y - x : x - y;
    };
    body.append(...[...body.rows].sort(compare));
  });
}
document.documentElement.dataset.ready = "true";
