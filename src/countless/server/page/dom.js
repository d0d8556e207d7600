// Elements are made here and nowhere else. Text goes in as text: a name that somebody chose cannot become markup.

export function element(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

export function drawing(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// Touch the page only where something is new: thousands of updates an hour, and a screen reader that listens.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function mark(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// Names come from anybody: kept apart, so that letters written from right to left do not turn what is around them.
export function named(name) {
  return element("bdi", { class: "name" }, name);
}

export function later(milliseconds, work) {
  let timer = null;
  const call = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), milliseconds);
  };
  call.cancel = () => clearTimeout(timer);
  return call;
}
