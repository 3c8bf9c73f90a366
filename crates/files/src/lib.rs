//! Small files that are read whole: keys, tokens, certificates.
//!
//! They are named by whoever writes the configuration, and read again while requests are served: none of
//! them may be without end, or keep the reader waiting.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// What is wrong, without the file's name: it cannot be read, is too large, or is no regular file, which is
/// not even opened: a device may have no end, and a pipe may have nobody at its other one.
pub fn read_small_file(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    let say = |error: std::io::Error| error.to_string();
    if !path.metadata().map_err(say)?.is_file() {
        return Err("is no regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path).map_err(say)?.take(limit).read_to_end(&mut bytes).map_err(say)?;
    if bytes.len() > most {
        return Err(format!("is larger than {most} bytes"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_or_is_too_large_is_not_read() {
        let read = |path: &Path| read_small_file(path, 16);
        assert_eq!(read(Path::new("/dev/zero")).unwrap_err(), "is no regular file");
        let dir = std::env::temp_dir();
        assert_eq!(read(&dir).unwrap_err(), "is no regular file");
        let name = |what: &str| dir.join(format!("kvasir-{what}-{}", std::process::id()));
        let (file, pipe) = (name("small"), name("pipe"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let of_pipe = read(&pipe);
        std::fs::remove_file(&pipe).unwrap();
        assert_eq!(of_pipe.unwrap_err(), "is no regular file");
        std::fs::write(&file, "sixteen-letters!").unwrap();
        assert_eq!(read(&file).unwrap(), b"sixteen-letters!");
        std::fs::write(&file, "seventeen-letters").unwrap();
        assert_eq!(read(&file).unwrap_err(), "is larger than 16 bytes");
        std::fs::remove_file(&file).unwrap();
    }
}
