const key = cell => cell.dataset.sort ?? cell.textContent.trim();
const missing = text => text === "" || text === "-";
for (const table of document.querySelectorAll("table.sortable")) {
  // On a narrow screen a row is a paragraph, and each cell says what it is.
  const heads = [...table.tHead.rows[0].cells].map(head => head.textContent);
  for (const row of table.tBodies[0].rows)
    for (const cell of row.cells) if (cell.classList.contains("n")) cell.dataset.head = heads[cell.cellIndex];
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const [x, y] = [key(a.cells[head.cellIndex]), key(b.cells[head.cellIndex])];
        if (missing(x) || missing(y)) return missing(x) - missing(y);
        const numbers = !isNaN(x) && !isNaN(y);
        return (numbers ? x - y : x.localeCompare(y, "en", { numeric: true })) * (up ? 1 : -1);
      });
      table.tBodies[0].append(...rows);
    });
  }
}
for (const tools of document.querySelectorAll(".tools[data-table]")) {
  const rows = document.getElementById(tools.dataset.table).tBodies[0].rows;
  const text = tools.querySelector("input"), choice = tools.querySelector("select"), shown = tools.querySelector("output");
  const filter = () => {
    const words = text.value.toLowerCase().split(/\s+/);
    let count = 0;
    for (const row of rows) {
      const hay = row.textContent.toLowerCase();
      row.hidden = !words.every(word => hay.includes(word)) || !!choice?.value && row.dataset.choice !== choice.value;
      count += !row.hidden;
    }
    shown.value = `${count} of ${rows.length}`;
  };
  text.addEventListener("input", filter);
  choice?.addEventListener("change", filter);
  filter();
}
