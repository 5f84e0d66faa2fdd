// Copies of blocks: panics that are caught, resumed, and that end a thread
use std::panic::{self, AssertUnwindSafe};
use std::thread;

struct Noisy(&'static str);
impl Drop for Noisy {
    #[inline(never)]
    fn drop(&mut self) {
        println!("drop {}", self.0);
    }
}

#[inline(never)]
fn deepest(x: usize) -> usize {
    let _noisy = Noisy("deepest");
    let values = [1, 2, 3];
    match x {
        0 => 7,
        1 => panic!("panic {x}"),
        2 => values[x + 5 - values.len() + 4],
        3 => "text".parse().unwrap(),
        4 => u8::try_from(x * 100).map(usize::from).expect("small"),
        5 => values.iter().map(|value| value / (x - 5)).sum(),
        _ => x,
    }
}

#[inline(never)]
fn through(x: usize) -> usize {
    let _first = Noisy("first");
    let boxed: Box<dyn Fn(usize) -> usize> = Box::new(deepest);
    let result = boxed(x);
    let _second = Noisy("second");
    result + 1
}

/// Catches a panic of its own while another one passes, or lets it end the program.
struct Careless(bool);
impl Drop for Careless {
    #[inline(never)]
    fn drop(&mut self) {
        let inner = || -> usize { through(1) };
        if self.0 {
            println!("inside {}", panic::catch_unwind(inner).is_err());
        } else {
            inner();
        }
    }
}

#[inline(never)]
fn careless(is_careful: bool) -> usize {
    let _careless = Careless(is_careful);
    through(4)
}

#[inline(never)]
fn guarded(x: usize) -> usize {
    match panic::catch_unwind(AssertUnwindSafe(|| through(x))) {
        Ok(value) => value,
        Err(cause) if x == 3 => {
            let again = panic::catch_unwind(AssertUnwindSafe(|| -> usize { panic::resume_unwind(cause) }));
            100 + again.unwrap_or(1)
        }
        Err(cause) => cause.downcast_ref::<String>().map_or(50, String::len),
    }
}

fn main() {
    panic::set_hook(Box::new(|information| println!("hook {}", information.payload().is::<String>())));
    let mut sum = 0;
    for x in 0..8 {
        sum += guarded(x);
        println!("{sum}");
    }
    let thread = thread::spawn(|| through(1));
    println!("{}", thread.join().is_err());
    println!("{}", panic::catch_unwind(|| careless(true)).is_err());
    match std::env::args().count() {
        1 => {}
        2 => drop(through(4)),
        _ => drop(careless(false)),
    }
}
