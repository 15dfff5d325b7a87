//! Frames on a stream: a length of two bytes, big end first, and as many bytes.

use quinn::{ReadError, ReadExactError, RecvStream, SendStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::failure::{Failure, Refusal};
use super::limits::MAX_STREAM_FRAME_BYTES;

/// Writes frames as they come. When `stop` is asked for, takes no more, and returns when all are written.
pub(crate) async fn write(
    stream: &mut SendStream,
    queue: &mut mpsc::Receiver<Vec<u8>>,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    loop {
        let frame = tokio::select! {
            biased;
            () = stop.cancelled(), if !queue.is_closed() => {
                queue.close();
                continue;
            }
            frame = queue.recv() => frame,
        };
        let Some(frame) = frame else { return Ok(()) };
        let Ok(length) = u16::try_from(frame.len()) else { continue };
        // One write for both, so that a frame is one packet and not two.
        bytes.clear();
        bytes.extend(length.to_be_bytes());
        bytes.extend(&frame);
        stream.write_all(&bytes).await?;
    }
}

/// Reads the next frame; none when the other side has ended its stream.
pub(crate) async fn read(stream: &mut RecvStream) -> Result<Option<Vec<u8>>, Failure> {
    let mut length = [0; 2];
    if ended(stream.read_exact(&mut length).await)? {
        return Ok(None);
    }
    let length = usize::from(u16::from_be_bytes(length));
    check_length(length, MAX_STREAM_FRAME_BYTES)?;
    let mut frame = vec![0; length];
    if ended(stream.read_exact(&mut frame).await)? {
        return Ok(None);
    }
    Ok(Some(frame))
}

fn ended(read: Result<(), ReadExactError>) -> Result<bool, Failure> {
    match read {
        Ok(()) => Ok(false),
        Err(ReadExactError::FinishedEarly(_)) => Ok(true),
        Err(ReadExactError::ReadError(ReadError::ConnectionLost(error))) => Err(error.into()),
        Err(ReadExactError::ReadError(error)) => Err(Failure::Lost(error.to_string())),
    }
}

/// No frame is longer than what is allowed for the way that it came.
pub(crate) fn check_length(length: usize, most: usize) -> Result<(), Refusal> {
    if length > most { Err(Refusal::FrameTooLong { length, most }) } else { Ok(()) }
}
