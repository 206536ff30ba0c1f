// Elements from data. Whatever comes from a cluster becomes text or an attribute's value, never markup.

const SVG = "http://www.w3.org/2000/svg";

// h("td.n", {title: "…"}, "text", other, null, [more])
export const h = (name, attributes, ...children) => made(document.createElement(name.split(".")[0]), name, attributes, children);
export const s = (name, attributes, ...children) => made(document.createElementNS(SVG, name.split(".")[0]), name, attributes, children);

function made(element, name, attributes, children) {
  const classes = name.split(".").slice(1);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") element.setAttribute("class", [...classes, value].join(" "));
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Makes what is in `parent` look like `children` without replacing what stays: focus, scrolling and what a person has
// opened survive. Elements with the same data-key are the same; others are by their place.
export function draw(parent, ...children) {
  const wanted = document.createDocumentFragment();
  wanted.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  below(parent, wanted);
}

function below(old, wanted) {
  const keyed = new Map();
  for (const child of old.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
  let place = old.firstChild;
  for (const next of [...wanted.childNodes]) {
    const key = next.dataset?.key;
    let found = key ? keyed.get(key) : place;
    while (!key && found?.dataset?.key) found = found.nextSibling;
    if (found && same(found, next)) {
      if (found !== place) old.insertBefore(found, place);
      else place = place.nextSibling;
      become(found, next);
    } else old.insertBefore(next, place);
  }
  while (place) {
    const gone = place;
    place = place.nextSibling;
    gone.remove();
  }
}

const same = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName && one.dataset?.key === other.dataset?.key;

function become(old, wanted) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.nodeValue !== wanted.nodeValue) old.nodeValue = wanted.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes])
    if (!wanted.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  for (const { name, value } of wanted.attributes)
    if (old.getAttribute(name) !== value && !(name === "open" && old.nodeName === "DETAILS")) old.setAttribute(name, value);
  below(old, wanted);
}
