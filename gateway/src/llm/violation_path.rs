//! Where a violation is, from the inside to the outside: pointers begin at what is checked, and get longer on the way out. A request has
//! tens of thousands of parts, and a pointer is needed for one of them at most.

use crate::{core::error::Violation, json::pointer::push_key};

/// What was found in the member `name` of an object. A long name is cut.
pub(super) fn within(name: &str, checked: Result<(), Violation>) -> Result<(), Violation> {
    checked.map_err(|violation| {
        let mut pointer = String::new();
        push_key(&mut pointer, name);
        Violation { pointer: pointer + &violation.pointer, ..violation }
    })
}

/// Checks the elements of a list up to the first violation.
pub(super) fn each<'a>(
    elements: impl Iterator<Item = &'a str>,
    check: impl Fn(&'a str) -> Result<(), Violation>,
) -> Result<(), Violation> {
    elements.enumerate().try_for_each(|(index, element)| at(index, check(element)))
}

/// What was found in an element of a list.
pub(super) fn at(index: usize, checked: Result<(), Violation>) -> Result<(), Violation> {
    checked.map_err(|violation| Violation { pointer: format!("/{index}{}", violation.pointer), ..violation })
}
