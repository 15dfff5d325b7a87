// Elements, made of text alone: whatever a daemon says is never read as HTML.

export const at = (id) => document.getElementById(id);

/** An element with attributes and children; strings become text. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets the text if it differs, so that nothing is announced or selected anew for no reason. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, shown) {
  if (element.hidden === shown) element.hidden = !shown;
}

/** Replaces what is in an element, unless it is the same already: `key` says what it is made of. */
export function fill(element, key, children) {
  if (element.dataset.key === key) return;
  element.dataset.key = key;
  element.replaceChildren(...children());
}

export const milliseconds = (value) => {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  if (value >= 100_000) return `${(value / 60_000).toFixed(1)} min`;
  if (value >= 10_000) return `${(value / 1000).toFixed(0)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(1)} s`;
  return `${value < 10 ? value.toFixed(1) : value.toFixed(0)} ms`;
};

/** A time that has passed, as one says it. */
export const duration = (value) => {
  const seconds = Math.max(0, Math.round(value / 1000));
  const two = (large, small, unit, part) => {
    const rest = Math.floor((seconds % large) / small);
    return `${Math.floor(seconds / large)} ${unit}${rest > 0 ? ` ${rest} ${part}` : ""}`;
  };
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return two(60, 1, "min", "s");
  if (seconds < 86_400) return two(3600, 60, "h", "min");
  return two(86_400, 3600, "d", "h");
};

export const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });

/** Each member has a colour of its own, the same on every page. */
export const hue = (member) => `hue-${(Number.parseInt(String(member).slice(1), 10) || 0) % 8}`;

export const badge = (member) => make("span", { class: `member ${hue(member)}` }, member);
