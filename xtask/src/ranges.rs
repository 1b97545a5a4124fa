//! `xtask ranges`: shows which ranges of a file are data and which are holes, and copies without reading; shells can do
//! neither.

use anyhow::{Context as _, bail};
use rustix::{
    fs::{SeekFrom, copy_file_range, fstat, seek},
    io::Errno,
};
use std::{fs::File, path::PathBuf};

/// What `xtask ranges` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Print each range, as `data OFFSET LENGTH` or `hole OFFSET LENGTH`
    Show {
        /// The file
        file: PathBuf,
    },
    /// Copy a file by copy_file_range(2), and print how many bytes each call has copied
    Copy {
        /// The file to copy
        from: PathBuf,
        /// The new file; it must not exist
        to: PathBuf,
    },
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.what {
        What::Show { file } => show(&File::open(file).with_context(|| file.display().to_string())?),
        What::Copy { from, to } => {
            let source = File::open(from).with_context(|| from.display().to_string())?;
            let target = File::create_new(to).with_context(|| to.display().to_string())?;
            copy(&source, &target)
        }
    }
}

fn show(file: &File) -> anyhow::Result<()> {
    let size = u64::try_from(fstat(file)?.st_size)?;
    let mut at = 0;
    while at < size {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            // No data is left.
            Err(Errno::NXIO) => size,
            Err(error) => return Err(error).context("SEEK_DATA"),
        };
        if data > at {
            println!("hole {at} {}", data - at);
        }
        if data == size {
            break;
        }
        let hole = seek(file, SeekFrom::Hole(data)).context("SEEK_HOLE")?;
        if hole <= data {
            bail!("a hole at {hole}, where data begins at {data}");
        }
        println!("data {data} {}", hole - data);
        at = hole;
    }
    Ok(())
}

fn copy(source: &File, target: &File) -> anyhow::Result<()> {
    let mut left = fstat(source)?.st_size;
    while left > 0 {
        let copied = copy_file_range(source, None, target, None, usize::try_from(left)?).context("copy_file_range")?;
        if copied == 0 {
            bail!("{left} bytes are left, and no more are copied");
        }
        println!("{copied}");
        left -= i64::try_from(copied)?;
    }
    Ok(())
}
