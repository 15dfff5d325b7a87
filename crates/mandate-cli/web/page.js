// The daemon's page: what one member knows, live.

import { at, say, show } from "/dom.js";
import { command, feed, keepToken } from "/feed.js";
import * as view from "/view.js";

let goneSince = null;
let latest = null;

const page = {
  status(status) {
    goneSince = null;
    latest = status;
    show(at("gone"), false);
    document.body.classList.remove("stale");
    view.leader(status);
    view.quality(status.quality);
  },
  elections(list, status) {
    view.members(status, list);
    view.elections(list, status);
    view.since(status, list);
  },
  events: view.events,
  gone(reason) {
    goneSince ??= Date.now();
    const ago = Math.round((Date.now() - goneSince) / 1000);
    const what = reason ?? "The daemon does not answer.";
    const kept = latest ? " Below is what was last known." : "";
    say(at("gone"), `${what} Trying again${ago > 2 ? `; gone for ${ago} s` : ""}.${kept}`);
    show(at("gone"), true);
    document.body.classList.add("stale");
    for (const id of ["resign", "transfer", "to"]) at(id).disabled = true;
  },
  /** Resolves when a token was given. */
  unauthorized(reason) {
    show(at("main"), false);
    show(at("token"), true);
    say(at("wrong"), reason.includes("not the token") ? "That is not the token." : "");
    at("secret").focus();
    return new Promise((resolve) => {
      at("token").addEventListener("submit", (event) => {
        event.preventDefault();
        keepToken(at("secret").value.trim());
        at("secret").value = "";
        show(at("token"), false);
        show(at("main"), true);
        resolve();
      }, { once: true });
    });
  },
};

async function have(doing, done, path, body) {
  const answer = at("answer");
  answer.dataset.kept = "1";
  say(answer, doing);
  const complaint = await command(path, body);
  say(answer, complaint ?? done);
  answer.className = complaint ? "bad" : "muted";
  setTimeout(() => {
    delete answer.dataset.kept;
    answer.className = "muted";
    say(answer, at("commands").dataset.hint ?? "");
  }, 6000);
}

at("resign").addEventListener("click", () =>
  have("Giving leadership back …", "Given back; the others elect.", "/v1/resign", {}));
at("transfer").addEventListener("click", () => {
  const to = at("to").value;
  have(`Handing over to ${to} …`, `Handed over to ${to}.`, "/v1/transfer", { to });
});

feed(page);
