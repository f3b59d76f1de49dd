//! Starts the command, waits for what comes first, and leaves nothing behind.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::{Pid, setsid};

use super::protocol::{ExitRecord, Order, ProcessSpec, Report};
use super::tree;

/// How soon another look is taken while the tree is being killed.
const FIRST_KILL_PAUSE: Duration = Duration::from_millis(2);
/// The longest pause: something that we may not kill (a set-user-id program) must not keep a core busy.
const LONGEST_KILL_PAUSE: Duration = Duration::from_millis(500);

/// What can happen while the command runs.
enum Happening {
    Order(Order),
    ParentGone,
    Ended(Pid, ExitRecord),
    NoChildLeft,
}

/// Reads what to run from `orders`, runs it to its end, and says how it ended.
pub fn run(orders: impl Read + Send + 'static, mut reports: impl Write) -> io::Result<ExitRecord> {
    // An error means that we lead a session already, which is as good.
    let _ = setsid();
    prctl::set_child_subreaper(true)?;
    let mut orders = BufReader::new(orders);
    let mut line = String::new();
    orders.read_line(&mut line)?;
    let spec: ProcessSpec = serde_json::from_str(&line)?;
    let record = match start(&spec) {
        Ok(main) => {
            tell(&mut reports, &Report::Started(main.as_raw()));
            // Only now: the command inherits the signal mask of the thread that starts it.
            SigSet::all().thread_block()?;
            watch_over(main, listen(orders))
        }
        Err(record) => {
            tell(&mut reports, &Report::NotStarted(record.clone()));
            record
        }
    };
    if let Some(file) = &spec.exit_file {
        record.write(file)?;
    }
    Ok(record)
}

/// A parent that does not listen any more has closed the other pipe as well, which ends the command.
fn tell(reports: &mut impl Write, report: &Report) {
    if let Ok(line) = serde_json::to_string(report) {
        let _ = writeln!(reports, "{line}").and_then(|()| reports.flush());
    }
}

fn start(spec: &ProcessSpec) -> Result<Pid, ExitRecord> {
    let [program, arguments @ ..] = spec.command.as_slice() else {
        let error = io::Error::from(io::ErrorKind::NotFound);
        return Err(ExitRecord::not_started(&error, "The command is empty.".to_owned()));
    };
    if !spec.working_directory.is_dir() {
        let message = format!("The working directory {:?} does not exist.", spec.working_directory);
        return Err(ExitRecord::not_started(&io::ErrorKind::NotADirectory.into(), message));
    }
    let spawn = || -> io::Result<Pid> {
        let (stdout, stderr) = outputs(spec)?;
        let child = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(&spec.env)
            .current_dir(&spec.working_directory)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0)
            .spawn()?;
        // The child is reaped in `wait_for_children`, with everything else that is ours by then.
        Ok(Pid::from_raw(child.id().cast_signed()))
    };
    spawn().map_err(|error| {
        ExitRecord::not_started(&error, format!("The command {program:?} cannot be started: {error}."))
    })
}

fn outputs(spec: &ProcessSpec) -> io::Result<(Stdio, Stdio)> {
    let Some(path) = &spec.log_file else { return Ok((Stdio::null(), Stdio::null())) };
    let file: File = OpenOptions::new().create(true).append(true).open(path)?;
    let copy = file.try_clone()?;
    Ok((Stdio::from(file), Stdio::from(copy)))
}

/// Starts the two threads that tell what happens.
fn listen(orders: impl BufRead + Send + 'static) -> Receiver<Happening> {
    let (sender, receiver) = channel();
    let to_main = sender.clone();
    thread::spawn(move || read_orders(orders, &to_main));
    thread::spawn(move || wait_for_children(&sender));
    receiver
}

fn read_orders(orders: impl BufRead, sender: &Sender<Happening>) {
    for line in orders.lines() {
        let Ok(line) = line else { break };
        let Some(order) = Order::parse(&line) else { continue };
        if sender.send(Happening::Order(order)).is_err() {
            return;
        }
    }
    let _ = sender.send(Happening::ParentGone);
}

/// Reaps whatever ends below us. As a subreaper we have a child as long as anything of the tree lives.
fn wait_for_children(sender: &Sender<Happening>) {
    loop {
        let happening = match wait() {
            Ok(WaitStatus::Exited(pid, code)) => Happening::Ended(pid, ExitRecord::exited(code)),
            Ok(WaitStatus::Signaled(pid, signal, _)) => {
                Happening::Ended(pid, ExitRecord::signaled(signal as i32))
            }
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(_) => Happening::NoChildLeft,
        };
        let last = matches!(happening, Happening::NoChildLeft);
        if sender.send(happening).is_err() || last {
            return;
        }
    }
}

/// Waits until nothing of the tree is left.
fn watch_over(main: Pid, happenings: Receiver<Happening>) -> ExitRecord {
    let mut record = ExitRecord::signaled(Signal::SIGKILL as i32);
    let mut pause = None;
    loop {
        let happening = match pause {
            None => happenings.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(pause) => happenings.recv_timeout(pause),
        };
        match happening {
            Ok(Happening::Order(Order::Terminate)) => {
                // The group is gone only if the command is, and then its end is on its way to us.
                let _ = killpg(main, Signal::SIGTERM);
                continue;
            }
            Ok(Happening::Order(Order::Kill) | Happening::ParentGone) => {}
            Ok(Happening::Ended(pid, end)) if pid == main => record = end,
            Ok(Happening::Ended(..)) if pause.is_none() => continue,
            Ok(Happening::Ended(..)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Happening::NoChildLeft) | Err(RecvTimeoutError::Disconnected) => return record,
        }
        tree::kill_descendants();
        pause = Some(pause.map_or(FIRST_KILL_PAUSE, |pause: Duration| (pause * 2).min(LONGEST_KILL_PAUSE)));
    }
}
