// Tables and lists of what a daemon says.

import { at, badge, clock, duration, fill, hue, make, milliseconds, say, show } from "/dom.js";

const LEADS = ["leading", "jeopardy"];
const MAX_EVENTS = 200;

export function leader(status) {
  const leads = LEADS.includes(status.state);
  say(at("group"), status.group);
  say(at("self"), `Member ${status.member} · ${leads ? "leads" : status.state === "following" ? "follows" : status.state}`);
  document.title = `${status.leader ?? "no leader"} · ${status.group}`;
  fill(at("leader"), `${status.leader} ${leads}`, () => status.leader
    ? [status.leader, make("small", {}, leads ? " this member" : "")]
    : ["No leader is known"]);
  at("leader").className = status.leader ? `member-name ${hue(status.leader)}` : "bad";
  facts(status);
  show(at("lease"), typeof status.lease_remaining_ms === "number");
  if (typeof status.lease_remaining_ms === "number") lease(status);
  commands(status, leads);
}

function facts(status) {
  const rows = [
    ["Term", status.term ?? "–"],
    ["Guarantee", status.guarantee],
    ["Oracle", status.oracle],
    // Where nobody votes, there is nothing to show.
    ...(status.has_vote === null ? [] : [["Vote", status.has_vote ? "yes" : status.no_vote ?? "none"]]),
  ];
  fill(at("facts"), JSON.stringify(rows), () =>
    rows.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))));
}

function lease(status) {
  const left = status.lease_remaining_ms;
  const length = status.lease_ms ?? left;
  const jeopardy = status.state === "jeopardy";
  say(at("left"), jeopardy ? `${milliseconds(left)}: renewals fail` : milliseconds(left));
  at("fill").style.setProperty("inline-size", `${Math.min(100, (100 * left) / length)}%`);
  at("fill").className = jeopardy ? "bad" : "";
}

function commands(status, leads) {
  show(at("commands"), true);
  at("resign").disabled = !leads;
  at("transfer").disabled = !leads;
  at("to").disabled = !leads;
  const others = status.members.map((peer) => [peer.id, !peer.suspected]);
  fill(at("to"), JSON.stringify(others), () =>
    others.map(([id, answers]) => make("option", { value: id, disabled: !answers }, id)));
  const hint = leads ? "" : status.leader ? `Leadership is moved on the page of ${status.leader}, which leads.` : "";
  at("commands").dataset.hint = hint;
  if (!at("answer").dataset.kept) say(at("answer"), hint);
}

export function members(status, elections) {
  const latest = elections.find((election) => election.candidates.some((candidate) => candidate.score));
  const scores = new Map((latest?.candidates ?? []).map((candidate) => [candidate.id, candidate]));
  const terms = status.oracle.split(",").map((term) => term.trim().split("/")[0]);
  const rows = [
    { id: status.member, own: true, requests: status.requests, figures: status.figures },
    ...status.members.map((peer) => ({ ...peer, figures: scores.get(peer.id)?.figures ?? {} })),
  ].sort((a, b) => Number.parseInt(a.id.slice(1), 10) - Number.parseInt(b.id.slice(1), 10));
  const key = JSON.stringify([rows, terms, status.leader, status.state]);
  fill(at("members-head"), terms.join(), () => [
    make("tr", {}, ...["Member", "State", "Round trip", "Requests", ...terms].map((name, place) =>
      make("th", { scope: "col", class: place > 1 ? "number" : null }, name))),
  ]);
  fill(at("members"), key, () => rows.map((row) => member(row, terms, status)));
  const about = latest ? `; of the others, from the election of term ${latest.term}` : "";
  const standing = status.not_a_candidate
    ? `${status.member} is no candidate: it ${status.not_a_candidate}.`
    : `Scores of ${status.member} as they are now${about}.`;
  const refused = status.members.filter((peer) => peer.trouble).map((peer) => `${peer.id}: ${peer.trouble}.`);
  say(at("standing"), [standing, ...(status.troubles ?? []), ...refused].join(" "));
}

function member(row, terms, status) {
  const leads = row.id === status.leader;
  const state = row.suspected ? [row.trouble ? "refused" : "does not answer", "bad"] : leads ? ["leads", "good"] : row.suspected === null ? ["–", ""] : ["answers", ""];
  const own = row.own && !leads ? ["this member", ""] : state;
  const trip = row.own ? "–" : row.suspected ? "–" : milliseconds(row.round_trip_ms ?? NaN);
  const requests = typeof row.requests === "number" ? `${Number(row.requests.toFixed(1))}/s` : "–";
  return make("tr", { class: leads ? "leads" : row.suspected ? "away" : null, "data-member": row.id },
    make("th", { scope: "row" }, badge(row.id)),
    make("td", {}, make("span", { class: `state ${own[1]}` }, own[0])),
    make("td", { class: "number" }, trip),
    make("td", { class: "number" }, requests),
    ...terms.map((term) => make("td", { class: "number" }, row.figures[term] ?? "–")));
}

const plain = (value, unit = "") =>
  typeof value === "number" && Number.isFinite(value) ? `${Number(value.toPrecision(3))}${unit}` : "–";
const share = (value) => plain(typeof value === "number" ? value * 100 : null, " %");
const seconds = (value) => (typeof value === "number" ? duration(value * 1000) : "–");

/** What was wanted of detection, what is done for it, what came of it. Every part may be missing. */
export function quality(list) {
  const entries = (Array.isArray(list) ? list : []).filter((entry) => entry?.member);
  show(at("quality-card"), entries.length > 0);
  fill(at("quality-head"), "fixed", () => [make("tr", {}, ...["Member", "Wanted", "Plan", "Measured"].map((name) =>
    make("th", { scope: "col" }, name)))]);
  const lines = (...pairs) => make("td", {}, make("dl", { class: "pairs" }, ...pairs
    .filter(([, value]) => value !== "–")
    .map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)))));
  fill(at("quality"), JSON.stringify(entries), () => entries.map(({ member, wanted, plan, measured }) =>
    make("tr", {}, make("th", { scope: "row" }, badge(member)),
      lines(
        ["crash noticed within", milliseconds(wanted?.detect_ms)],
        ["a mistake at most every", seconds(wanted?.mistake_every_s)],
        ["corrected within", milliseconds(wanted?.mistake_lasts_ms)]),
      lines(
        ["heartbeat every", milliseconds(plan?.interval_ms)],
        ["may be late by", milliseconds(plan?.margin_ms)]),
      lines(
        ["lost", share(measured?.loss)],
        ["delay varies by", milliseconds(measured?.delay_sd_ms)],
        ["mistakes", plain(measured?.mistakes)],
        ["one every", seconds(measured?.mistake_every_s)],
        ["corrected after", milliseconds(measured?.mistake_lasts_ms)],
        ["slowest detection", milliseconds(measured?.detection_max_ms)]))));
}

export function elections(list, status) {
  reigns(list, status.now_ms);
  const key = JSON.stringify(list.map((election) => [election.term, election.leader, election.until_ms, election.candidates.length]));
  if (at("elections").dataset.key === key) return;
  const open = new Set([...at("elections").querySelectorAll("details[open]")].map((item) => item.dataset.term));
  fill(at("elections"), key, () =>
    list.length === 0 ? [make("p", { class: "muted" }, "No election has ended yet.")] : list.map((election) => reign(election, open)));
}

function reign(election, open) {
  const until = election.until_ms ? clock(election.until_ms) : "now";
  const lasted = election.until_ms ? ` (${duration(election.until_ms - election.at_ms)})` : "";
  const term = String(election.term);
  return make("details", { "data-term": term, open: open.has(term) },
    make("summary", {},
      badge(election.leader),
      make("span", { class: "term" }, `term ${term}`),
      make("span", {}, election.why),
      make("span", { class: "muted" }, `${clock(election.at_ms)} – ${until}${lasted}`),
      make("span", { class: "muted" }, `selected in ${milliseconds(election.selection_ms)}, installed in ${milliseconds(election.installation_ms)}`)),
    explanation(election));
}

function explanation(election) {
  const notes = [election.former ? `After ${election.former}.` : "No leader was known before."];
  if (election.rounds > 1) notes.push(`It took ${election.rounds} rounds.`);
  if (election.suspected.length > 0) notes.push(`Not waited for, as they did not answer: ${election.suspected.join(", ")}.`);
  if (election.handed_over_by && election.candidates.length > 0) notes.push("Nobody stood for election. What everyone would be worth in the former leader's place, as this member knew it:");
  else if (!election.ended && election.candidates.length > 0) notes.push("This member heard of the leader before it had heard everyone; the leader knows more.");
  if (election.candidates.length === 0) notes.push("No scores were compared.");
  const rows = election.candidates.map((candidate) => make("tr", {},
    make("th", { scope: "row" }, badge(candidate.id)),
    make("td", {}, Object.entries(candidate.figures).map(([name, value]) => `${name} ${value}`).join(", ") || "–"),
    make("td", {}, candidate.outcome)));
  const head = make("tr", {}, ...["Candidate", "Scores", "Outcome"].map((name) => make("th", { scope: "col" }, name)));
  return make("div", { class: "explanation" },
    make("p", {}, notes.join(" ")),
    rows.length > 0 ? make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))) : null);
}

/** The strip: who led when, the latest at the right. */
function reigns(list, now) {
  const shown = [...list].reverse().slice(-24);
  if (shown.length === 0) return;
  const from = shown[0].at_ms;
  const span = Math.max(1000, now - from);
  // By the hundredth part, so that the strip is not made anew with every answer.
  const places = shown.map((election) => [
    election.leader, election.term,
    Math.round((1000 * (election.at_ms - from)) / span) / 10,
    Math.max(0.4, Math.round((1000 * ((election.until_ms ?? now) - election.at_ms)) / span) / 10),
  ]);
  fill(at("reigns"), JSON.stringify(places), () => places.map(([who, term, left, width]) => {
    const piece = make("div", { class: `reign ${hue(who)}`, title: `${who}, term ${term}` }, width > 4 ? who : "");
    piece.style.setProperty("inset-inline-start", `${left}%`);
    piece.style.setProperty("inline-size", `${Math.min(width, 100 - left)}%`);
    return piece;
  }));
}

export function since(status, list) {
  const present = list.find((election) => election.term === status.term && !election.until_ms);
  say(at("since"), present && status.leader ? `for ${duration(status.now_ms - present.at_ms)}, as ${present.why}` : "");
}

export function events(list, fresh) {
  const box = at("events");
  if (fresh) box.replaceChildren();
  for (const event of list) {
    box.prepend(make("li", { class: event.kind },
      make("time", { datetime: new Date(event.at_ms).toISOString() }, clock(event.at_ms)),
      make("span", {}, event.text)));
  }
  while (box.children.length > MAX_EVENTS) box.lastChild.remove();
}
