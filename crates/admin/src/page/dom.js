// Elements made and kept up to date. Text goes in as text only: names come from outside.

/** An element with attributes and children; texts become text nodes. */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(key, value === true ? "" : String(value));
    }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Sets a text where it is another one, so that nothing is read out or selected anew for nothing. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Puts a sentence into an element; what stands between backticks becomes code. */
export function setProse(node, sentence) {
  const ended = /[.!?]$/.test(sentence) ? sentence : `${sentence}.`;
  const said = ended.charAt(0).toUpperCase() + ended.slice(1);
  if (node.dataset.said === said) return;
  node.dataset.said = said;
  node.replaceChildren(...said.split("`").map((part, place) => (place % 2 === 1 ? el("code", {}, part) : part)));
}

/**
 * Makes the children of a parent those of a list, in its order. Children are known by a key, and stay
 * the same elements: what is focused, selected or unfolded stays so.
 */
export function sync(parent, items, keyOf, make, update = () => {}) {
  const known = new Map();
  for (const child of [...parent.children]) {
    if (child.dataset.key === undefined) child.remove();
    else known.set(child.dataset.key, child);
  }
  const counts = new Map();
  let before = null;
  // From the end: of equal items the older ones keep their elements.
  for (const item of [...items].reverse()) {
    const plain = String(keyOf(item));
    const count = (counts.get(plain) ?? 0) + 1;
    counts.set(plain, count);
    const key = `${plain}#${count}`;
    let child = known.get(key);
    if (child === undefined) {
      child = make(item);
      child.dataset.key = key;
    }
    known.delete(key);
    update(child, item);
    if (child.nextElementSibling !== before || child.parentNode !== parent) {
      parent.insertBefore(child, before);
    }
    before = child;
  }
  for (const gone of known.values()) gone.remove();
}

/**
 * A table whose rows can stand as sheets of their own where it is narrow. Roles are written out since
 * a change of `display` takes them away. Columns: `{label, unit, number, wide, name}`.
 */
export function table(caption, columns) {
  const head = el("tr", { role: "row" });
  for (const { label, unit, number } of columns) {
    const unitText = unit ? el("small", {}, unit) : null;
    head.append(el("th", { role: "columnheader", scope: "col", class: number ? "number" : null }, label, unitText));
  }
  const body = el("tbody", { role: "rowgroup" });
  const made = el(
    "table",
    { role: "table" },
    el("caption", { class: "unseen" }, caption),
    el("thead", { role: "rowgroup" }, head),
    body,
  );
  return { root: el("div", { class: "sheet stacks" }, made), body };
}

/** A row for columns, empty; the first cell is its head. */
export function row(columns) {
  const made = el("tr", { role: "row" });
  columns.forEach(({ label, unit, number, wide, name }, place) => {
    const classes = Object.entries({ number, wide, name }).filter(([, is]) => is).map(([kind]) => kind).join(" ");
    const common = { class: classes || null, "data-label": unit ? `${label}, ${unit}` : label };
    made.append(
      place === 0
        ? el("th", { role: "rowheader", scope: "row", class: common.class })
        : el("td", { role: "cell", ...common }),
    );
  });
  return made;
}

/** Puts lines into a cell: the first large, the others small. */
export function fill(cell, first, ...more) {
  let main = cell.querySelector(":scope > div");
  if (main === null) {
    main = el("div", {}, el("span"), ...more.map(() => el("small")));
    cell.append(main);
  }
  const [head, ...rest] = main.children;
  setText(head, first);
  more.forEach((text, place) => setText(rest[place], text ?? ""));
  return head;
}

/** A share as a bar below a cell's text; none where it is not known. */
export function bar(cell, share) {
  let found = cell.querySelector(".bar");
  if (found === null) {
    found = el("span", { class: "bar", "aria-hidden": "true" }, el("span"));
    cell.firstElementChild.append(found);
  }
  found.hidden = share === null || share === undefined;
  const width = Math.min(1, Math.max(0, share ?? 0)) * 100;
  found.firstElementChild.style.width = `${width.toFixed(1)}%`;
}
