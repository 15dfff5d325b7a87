// The way to the daemon: its status again and again, its events as they happen, commands to it.
//
// Events are read with fetch and not with EventSource, which cannot send a token. A daemon that does not answer is
// asked again, ever more slowly; the page says so meanwhile and shows what was last known.

const PATIENCE = 3000;
const EVERY = 1000;
const SLOWEST = 5000;

let token = sessionStorage.getItem("token");

export function keepToken(secret) {
  token = secret;
  sessionStorage.setItem("token", secret);
}

function request(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = `Bearer ${token}`;
  return fetch(path, { ...options, headers, cache: "no-store", credentials: "omit", redirect: "error" });
}

/** The daemon wants a token, or another one. */
export class Unauthorized extends Error {}

export async function ask(path) {
  const response = await request(path, { signal: AbortSignal.timeout(PATIENCE) });
  if (response.status === 401) throw new Unauthorized(await response.text());
  if (!response.ok) throw new Error((await response.text()).trim());
  return response.json();
}

/** Has the daemon do something; what it complains of, or null. */
export async function command(path, body) {
  try {
    const response = await request(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(PATIENCE * 3),
    });
    return response.ok ? null : (await response.text()).trim();
  } catch {
    return "The daemon did not answer.";
  }
}

/** Calls `take` with each event after number `after`, until the daemon or `signal` ends it; whether there was a stream. */
async function follow(after, signal, take) {
  const response = await request(`/v1/events?after=${after}`, { signal }).catch(() => null);
  if (!response?.ok) return false;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch(() => ({ done: true }));
    if (done) return true;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ")) take(JSON.parse(line.slice(6)));
    }
  }
}

/**
 * Keeps the page fed until it is closed. `page` has status(status), elections(list), events(list, fresh), gone(reason) and
 * unauthorized(reason); the last is awaited.
 */
export async function feed(page) {
  let life = null;
  let last = 0;
  let stream = null;
  let pause = EVERY;
  let wake = () => {};
  const soon = () => wake();

  const listen = () => {
    const abort = new AbortController();
    stream = abort;
    let heard = [];
    const deliver = () => {
      if (heard.length > 0) page.events(heard, false);
      heard = [];
      soon();
    };
    follow(last, abort.signal, (event) => {
      last = event.id ?? last;
      // What comes in one piece is shown in one piece.
      if (heard.push(event) === 1) queueMicrotask(deliver);
    }).then((was) => {
      if (stream === abort) stream = null;
      // One that broke is news; one that was refused is asked for again in its turn.
      if (was) soon();
    });
  };

  for (;;) {
    try {
      const [status, elections] = await Promise.all([ask("/v1/status"), ask("/v1/elections")]);
      if (status.started_ms !== life) {
        // Another start of the daemon counts its events anew.
        life = status.started_ms;
        last = 0;
        stream?.abort();
        stream = null;
        page.events([], true);
      }
      if (!stream) listen();
      page.status(status);
      page.elections(elections, status);
      pause = EVERY;
    } catch (error) {
      if (error instanceof Unauthorized) {
        await page.unauthorized(error.message.trim());
        continue;
      }
      const reason = error instanceof TypeError || error.name === "TimeoutError" ? null : error.message;
      page.gone(reason);
      pause = Math.min(SLOWEST, pause * 1.5);
    }
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, pause);
      wake = () => {
        clearTimeout(timer);
        setTimeout(resolve, 50);
      };
    });
  }
}
