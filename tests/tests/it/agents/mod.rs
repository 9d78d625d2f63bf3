//! The drop-ins that put another system's agents behind the gateway (`examples/*-agent`). Stand-ins call them as these
//! systems document it, because the systems themselves can't be run here.

mod dexto;
mod drover;
mod kaged;
mod kaged_daemon;
mod librefang;
mod librefang_loop;
mod mastermind;
mod stand_in;
mod support;
