//! The recorder where programs end badly: killed in the middle of a fork, outlived by others, or out of reach.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::sync::mpsc;
use std::time::Duration;

use end_to_end::recorded_programs::{compile, request};
use reorder::record::{Ending, record};

/// Far longer than anything that ends at all.
const FOR_EVER: Duration = Duration::from_secs(120);

#[test]
fn a_process_that_ends_while_its_threads_fork_is_recorded_to_its_end() {
    let program = compile(
        r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <unistd.h>
        void step_child(void) { _exit(0); }
        void *work(void *unused) { for (;;) if (!fork()) step_child(); }
        int main(int count, char **words) {
            pthread_t thread;
            pthread_create(&thread, 0, work, 0);
            pthread_create(&thread, 0, work, 0);
            usleep(atoi(words[1]));
            _exit(3);
        }"#,
        &["-pthread"],
    );
    let (ended, endings) = mpsc::channel();
    let path = program.path.clone();
    // Not joined: one that hangs must not hang the test.
    std::thread::spawn(move || {
        for delay in (150..6000).step_by(100) {
            let outcome = record(&request(&path, &[&delay.to_string()])).unwrap();
            ended.send((delay, outcome.ending)).unwrap();
        }
    });
    for delay in (150..6000).step_by(100) {
        assert_eq!(endings.recv_timeout(FOR_EVER), Ok((delay, Ending::Exited(3))));
    }
}
