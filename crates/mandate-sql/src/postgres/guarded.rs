//! A connection that keeps a password from being sent in plain text.
//!
//! The driver sends what it is asked for. A server whose `pg_hba.conf` says `password`, and an impostor that poses as one, asks for
//! the password itself; over a connection without TLS everyone on the way can read it. So the first messages of the
//! server are read along: over a plain connection to another host, that request ends the connection before it is answered.
//! Challenges (`scram-sha-256`, `md5`) pass: their answers do not contain the password.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a refusal begins with: it does not pass by itself.
pub(super) const NO_TLS: &str = "the server does not offer TLS, and sslmode asks for it";
pub(super) const PLAIN_PASSWORD: &str = "the server asks for the password in plain text over a connection that is not \
     encrypted: have it offer TLS (ssl = on), have it use scram-sha-256, or write sslmode=disable if everyone on the way \
     may know the password";

/// A socket of any kind.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// What is seen to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    /// The driver asks for TLS first: the server's first byte is its answer.
    pub(super) asks_for_tls: bool,
    /// No is no answer to that.
    pub(super) insists: bool,
    /// The password is not sent in plain text.
    pub(super) hides_password: bool,
}

/// Whether the connection turned out to be plain although TLS was asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct IsPlain(Arc<AtomicBool>);

impl IsPlain {
    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What comes next from the server.
#[derive(Debug)]
enum State {
    /// The answer to the question for TLS.
    Answer,
    /// A message of the login, of which this much was read. Four bytes after the header are enough.
    Login { read: Vec<u8> },
    /// The rest of such a message.
    Rest { bytes: usize },
    /// Nothing that is of interest.
    Open,
}

/// A connection, read along until the login is done.
pub(super) struct Guarded {
    inner: Box<dyn Duplex>,
    rules: Rules,
    state: State,
    is_plain: IsPlain,
}

impl Guarded {
    pub(super) fn new(inner: Box<dyn Duplex>, rules: Rules) -> Self {
        let state = if rules.asks_for_tls { State::Answer } else { State::Open };
        Guarded { inner, rules, state, is_plain: IsPlain::default() }
    }

    pub(super) fn is_plain(&self) -> IsPlain {
        self.is_plain.clone()
    }

    /// Looks at what has come.
    fn look(&mut self, bytes: &[u8]) -> io::Result<()> {
        for byte in bytes {
            if matches!(self.state, State::Open) {
                break;
            }
            let state = std::mem::replace(&mut self.state, State::Open);
            self.state = self.step(state, *byte)?;
        }
        Ok(())
    }

    fn step(&self, state: State, byte: u8) -> io::Result<State> {
        Ok(match state {
            State::Answer if byte == b'S' => State::Open,
            State::Answer if self.rules.insists => return Err(io::Error::other(NO_TLS)),
            State::Answer => {
                self.is_plain.0.store(true, Ordering::Relaxed);
                // Something else than a no is a message already.
                let read = if byte == b'N' { Vec::new() } else { vec![byte] };
                if self.rules.hides_password { State::Login { read } } else { State::Open }
            }
            State::Login { mut read } => {
                read.push(byte);
                let needed = if read[0] == b'R' { 9 } else { 5 };
                if read.len() < needed { State::Login { read } } else { judged(&read)? }
            }
            State::Rest { bytes: 1 } => State::Login { read: Vec::new() },
            State::Rest { bytes } => State::Rest { bytes: bytes - 1 },
            State::Open => State::Open,
        })
    }
}

/// What a message's beginning means: its kind, its length without the kind, and of a request what is asked for.
fn judged(read: &[u8]) -> io::Result<State> {
    const DONE: u32 = 0;
    const PLAIN_TEXT: u32 = 3;
    let number =
        |at: usize| u32::from_be_bytes([read[at], read[at + 1], read[at + 2], read[at + 3]]);
    if read[0] == b'R' {
        match number(5) {
            DONE => return Ok(State::Open),
            PLAIN_TEXT => return Err(io::Error::other(PLAIN_PASSWORD)),
            _ => {}
        }
    }
    let left = (number(1) as usize + 1).saturating_sub(read.len());
    Ok(if left == 0 { State::Login { read: Vec::new() } } else { State::Rest { bytes: left } })
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        Poll::Ready(self.look(&buffer.filled()[before..]))
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIDES: Rules = Rules { asks_for_tls: true, insists: false, hides_password: true };

    /// What is said to these bytes, whole and byte by byte.
    fn said(rules: Rules, bytes: &[u8]) -> Option<String> {
        let mut whole = Guarded::new(Box::new(tokio::io::empty()), rules);
        let said = whole.look(bytes).err().map(|error| error.to_string());
        let mut pieces = Guarded::new(Box::new(tokio::io::empty()), rules);
        let again = bytes.chunks(1).find_map(|piece| pieces.look(piece).err());
        assert_eq!(said, again.map(|error| error.to_string()), "in pieces as in whole");
        said
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
    }

    #[test]
    fn a_password_in_plain_text_is_refused_wherever_the_request_stands() {
        let asks = message(b'R', &3_u32.to_be_bytes());
        let plain = Some(PLAIN_PASSWORD.to_owned());
        assert_eq!(said(HIDES, &[b"N", &asks[..]].concat()), plain);
        let notice = message(b'v', b"some notice that comes first");
        assert_eq!(said(HIDES, &[b"N", &notice[..], &asks].concat()), plain);
        let challenge = message(b'R', &[&10_u32.to_be_bytes()[..], b"SCRAM-SHA-256\0\0"].concat());
        assert_eq!(said(HIDES, &[b"N", &challenge[..]].concat()), None);
        assert_eq!(said(HIDES, &[b"N", &challenge[..], &asks].concat()), plain);
        let done = message(b'R', &0_u32.to_be_bytes());
        assert_eq!(said(HIDES, &[b"N", &done[..], &asks].concat()), None, "that is data");
        // Encrypted bytes may look like anything, and loopback is nobody else's.
        assert_eq!(said(HIDES, &[b"S", &asks[..]].concat()), None);
        let near = Rules { hides_password: false, ..HIDES };
        assert_eq!(said(near, &[b"N", &asks[..]].concat()), None);
    }

    #[test]
    fn no_is_no_answer_to_who_insists() {
        let insists = Rules { insists: true, ..HIDES };
        assert_eq!(said(insists, b"N"), Some(NO_TLS.to_owned()));
        assert_eq!(said(insists, b"S"), None);
    }
}
