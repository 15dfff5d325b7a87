//! A register outside of the group that refuses older terms: what fencing is for.
//!
//! It takes a write only with a term at least as high as the highest it has seen. [`Fence`] is that rule
//! alone; [`Register`] is a real one, a Unix socket in the harness to which members write at every act. A
//! path in the file system and not a port, so that members in other network namespaces reach it, too.
//!
//! A write is the line `MEMBER TERM`; the answer is `ok`, or `no HIGHEST`.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use mandate_proto::identity::{MemberId, Term};

/// The highest term that was seen, and so the lowest that is taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fence {
    highest: Term,
}

impl Fence {
    /// Takes a write of this term, or says which higher one was seen.
    pub fn admit(&mut self, term: Term) -> Result<(), Term> {
        if term < self.highest {
            return Err(self.highest);
        }
        self.highest = term;
        Ok(())
    }
}

/// A write that the register took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Who wrote.
    pub member: MemberId,
    /// In which term.
    pub term: Term,
}

#[derive(Default)]
struct Content {
    fence: Fence,
    /// Writes that were taken, in order. Repetitions are left out.
    accepted: Vec<Accepted>,
    refused: u64,
}

/// A register that members of other processes write to. It ends when this is dropped.
pub struct Register {
    path: PathBuf,
    content: Arc<Mutex<Content>>,
    ends: Arc<AtomicBool>,
}

impl Register {
    /// Listens at a path, which must not exist.
    pub fn start(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let register =
            Register { path: path.to_owned(), content: Arc::default(), ends: Arc::default() };
        let (content, ends) = (register.content.clone(), register.ends.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::Acquire) {
                    return;
                }
                let content = content.clone();
                // Each ends with its member, whose socket the kernel closes.
                if let Ok(stream) = stream {
                    thread::spawn(move || serve(stream, &content));
                }
            }
        });
        Ok(register)
    }

    /// What was taken so far, in order, without repetitions.
    pub fn accepted(&self) -> Vec<Accepted> {
        lock(&self.content).accepted.clone()
    }

    /// How many writes were refused so far.
    pub fn refused(&self) -> u64 {
        lock(&self.content).refused
    }
}

impl Drop for Register {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        // Wakes the listener.
        let _ = UnixStream::connect(&self.path);
    }
}

fn lock(content: &Mutex<Content>) -> std::sync::MutexGuard<'_, Content> {
    content.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(mut stream: UnixStream, content: &Mutex<Content>) {
    let Ok(reading) = stream.try_clone() else { return };
    for line in BufReader::new(reading).lines().map_while(Result::ok) {
        let Some(write) = parse(&line) else { return };
        let answer = match take(&mut lock(content), write) {
            Ok(()) => "ok\n".to_owned(),
            Err(highest) => format!("no {highest}\n"),
        };
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn parse(line: &str) -> Option<Accepted> {
    let (member, term) = line.split_once(' ')?;
    Some(Accepted { member: member.parse().ok()?, term: Term::new(term.parse().ok()?) })
}

fn take(content: &mut Content, write: Accepted) -> Result<(), Term> {
    match content.fence.admit(write.term) {
        Ok(()) => {
            if content.accepted.last() != Some(&write) {
                content.accepted.push(write);
            }
            Ok(())
        }
        Err(highest) => {
            content.refused += 1;
            Err(highest)
        }
    }
}

/// A member's connection to a register.
#[derive(Debug)]
pub struct RegisterWriter {
    stream: BufReader<UnixStream>,
}

impl RegisterWriter {
    /// Connects to the register at a path.
    pub fn connect(path: &Path) -> io::Result<Self> {
        Ok(RegisterWriter { stream: BufReader::new(UnixStream::connect(path)?) })
    }

    /// Writes; if the register refuses, the higher term that it has seen.
    pub fn write(&mut self, member: MemberId, term: Term) -> io::Result<Result<(), Term>> {
        self.stream.get_mut().write_all(format!("{member} {term}\n").as_bytes())?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer)?;
        let answer = answer.trim_end();
        let highest = || answer.strip_prefix("no ")?.parse().ok().map(Term::new);
        match answer {
            "ok" => Ok(Ok(())),
            _ => highest().map(Err).ok_or_else(|| io::ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_term_is_refused_after_a_newer_by_a_real_register() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("register");
        let register = Register::start(&path).unwrap();
        let [mut old, mut new] = [(); 2].map(|()| RegisterWriter::connect(&path).unwrap());
        let (p1, p2) = (MemberId::new(1), MemberId::new(2));
        assert_eq!(old.write(p1, Term::new(3)).unwrap(), Ok(()));
        assert_eq!(new.write(p2, Term::new(5)).unwrap(), Ok(()));
        assert_eq!(old.write(p1, Term::new(3)).unwrap(), Err(Term::new(5)));
        assert_eq!(new.write(p2, Term::new(5)).unwrap(), Ok(()));
        let accepted =
            [(p1, 3), (p2, 5)].map(|(member, term)| Accepted { member, term: Term::new(term) });
        assert_eq!((register.accepted(), register.refused()), (accepted.to_vec(), 1));
    }
}
