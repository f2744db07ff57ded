// A table with a search box shows the first rows that match; all of them after a click on "show all".
// Rows that only wait for that click are printed, as far as paper lasts. Words are looked for in all texts of a row.
const everywhere = document.getElementById("everywhere"), PRINTED = 1000;
const wanted = (box) =>
  [everywhere, box.querySelector("input")].flatMap((input) => (input ? input.value.toLowerCase().split(/\s+/) : [])).filter(Boolean);
const refresh = (box) => {
  const words = wanted(box), rows = [...box.querySelector("tbody").rows];
  const most = "all" in box.dataset ? Infinity : Number(box.dataset.shown);
  let found = 0;
  for (const row of rows) {
    const names = [...row.querySelectorAll("td:first-child, td.text")].map((cell) => cell.textContent).join(" ").toLowerCase();
    const fits = words.every((word) => names.includes(word));
    row.hidden = !fits;
    row.classList.toggle("cut", fits && found >= most);
    row.classList.toggle("never", fits && found >= PRINTED);
    if (fits) found += 1;
  }
  const seen = Math.min(found, most);
  box.querySelector("[aria-live]").textContent =
    seen < found ? `the first ${seen} of ${found} rows` : found < rows.length ? `${found} of ${rows.length} rows` : `${found} rows`;
  return found;
};

// A click on a column's title sorts its table: numbers by value, missing ones last, names by letter.
for (const title of document.querySelectorAll("table.sortable .sort")) {
  title.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    title.click();
  });
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
    const box = title.closest(".searched");
    if (box) refresh(box);
  });
}

// Every row of the table, numbers in full, whatever is shown.
const csv = (table) => {
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const value = (cell) => {
    const exact = cell.dataset.value;
    return exact === undefined ? cell.textContent : Number.isFinite(Number(exact)) ? exact : "";
  };
  const head = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map(value));
  return [head, ...rows].map((row) => row.map(quoted).join(",") + "\r\n").join("");
};
for (const box of document.querySelectorAll(".searched")) {
  box.querySelector("input")?.addEventListener("input", () => refresh(box));
  box.querySelector(".all")?.addEventListener("click", (event) => {
    box.dataset.all = "";
    event.target.remove();
    refresh(box);
  });
  box.querySelector(".save").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv(box.querySelector("table"))], { type: "text/csv" }));
    link.download = `${box.dataset.file}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
  box.querySelector(".tools").hidden = false;
  refresh(box);
}

// One search for all tables, and a page in the colours that the reader wants.
everywhere.addEventListener("input", () => {
  const found = [...document.querySelectorAll(".searched")].map(refresh);
  document.getElementById("matches").textContent = everywhere.value
    ? `${found.reduce((sum, count) => sum + count, 0)} rows in ${found.filter(Boolean).length} tables`
    : "";
});
const root = document.documentElement, theme = document.getElementById("theme");
const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
theme.textContent = dark() ? "light colours" : "dark colours";
theme.addEventListener("click", () => {
  root.dataset.theme = dark() ? "light" : "dark";
  theme.textContent = dark() ? "light colours" : "dark colours";
});
theme.closest(".tools").hidden = false;

// On paper nothing is folded.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const one of opened) one.open = true;
});
addEventListener("afterprint", () => {
  for (const one of opened) one.open = false;
});
root.dataset.ready = "true";
