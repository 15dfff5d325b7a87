// The demo's page: how everyone is, and buttons that make them fail.

import { at, badge, fill, hue, make, say, show } from "/dom.js";

const EVERY = 400;
const BUSY = 5000;

const STATES = {
  running: ["runs", ""],
  paused: ["paused", "bad"],
  cut_off: ["cut off", "bad"],
  dead: ["killed", "bad"],
};

async function order(member, act) {
  await fetch("/v1/order", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ member, act }),
    signal: AbortSignal.timeout(3000),
  }).catch(() => {});
  refresh();
}

function button(name, label, member, act, enabled) {
  const it = make("button", { type: "button", "data-act": name, disabled: !enabled, "aria-label": `${label} ${member.id}` }, label);
  it.addEventListener("click", () => order(member.id, act));
  return it;
}

function buttons(member) {
  const up = member.condition === "running";
  const { history, requests } = member.figures;
  const score = (figures) => ({ score: { history, requests, ...figures } });
  return make("div", { class: "row" },
    button("kill", "Kill", member, "kill", member.condition !== "dead"),
    button("pause", "Pause", member, "pause", up),
    button("cut", "Cut off", member, "cut_off", up),
    button("revive", "Revive", member, "revive", !up),
    button("busy", requests >= BUSY ? "Calm" : "Busy", member, score({ requests: requests >= BUSY ? 100 : BUSY }), true),
    button("log", "Log +100", member, score({ history: history + 100 }), true));
}

function row(member, leader) {
  const leads = member.id === leader;
  const part = typeof member.part?.part === "string" ? member.part.part : null;
  const [text, tone] = member.condition === "running"
    ? leads ? ["leads", "good"] : [part === "following" ? `follows ${member.leader ?? "…"}` : "no leader", ""]
    : STATES[member.condition];
  const page = make("a", { href: member.page, target: "_blank", rel: "noopener", title: `The page of ${member.id}` }, badge(member.id));
  return make("tr", { class: leads ? "leads" : tone === "bad" ? "away" : null, "data-member": member.id },
    make("th", { scope: "row" }, page),
    make("td", {}, member.place),
    make("td", {}, make("span", { class: `state ${tone}` }, text)),
    make("td", { class: "number" }, member.latency ?? "–"),
    make("td", { class: "number" }, `${member.figures.requests}/s`),
    make("td", { class: "number" }, String(member.figures.history)),
    make("td", {}, buttons(member)));
}

function draw(scene) {
  say(at("leader"), scene.leader ?? "No leader");
  at("leader").className = scene.leader ? `member-name ${hue(scene.leader)}` : "bad";
  const place = scene.members.find((member) => member.id === scene.leader)?.place;
  say(at("term"), scene.leader ? `${place}, term ${scene.term}` : "The others notice, and elect.");
  document.title = `${scene.leader ?? "no leader"} · mandate demo`;
  // Per row, so that a button that is about to be pressed is not replaced for nothing.
  const body = at("members");
  scene.members.forEach((member, place) => {
    const key = JSON.stringify([member, member.id === scene.leader]);
    const present = body.children[place];
    if (present?.dataset.key === key) return;
    const focused = present?.contains(document.activeElement) ? document.activeElement.dataset.act : null;
    const made = row(member, scene.leader);
    made.dataset.key = key;
    if (present) present.replaceWith(made);
    else body.append(made);
    if (focused) made.querySelector(`[data-act=${focused}]`)?.focus();
  });
  fill(at("story"), String(scene.story[0]?.id), () => scene.story.map((line) =>
    make("li", {}, make("time", {}, `${line.seconds.toFixed(1)} s`), make("span", {}, line.text))));
}

async function refresh() {
  try {
    const response = await fetch("/v1/scene", { cache: "no-store", signal: AbortSignal.timeout(3000) });
    draw(await response.json());
    show(at("gone"), false);
    document.body.classList.remove("stale");
  } catch {
    show(at("gone"), true);
    document.body.classList.add("stale");
  }
}

(async () => {
  for (;;) {
    await refresh();
    await new Promise((resolve) => setTimeout(resolve, EVERY));
  }
})();
