//! How messages get from one end to the other, and completions from an end to its owner.

use crate::{
    endpoint::{Channel, Endpoint, side},
    log::{Event, Happening},
    state::{Action, Route, State},
};
use rpcrdma_fabric::Completion;

impl State {
    /// The end, if it is open and its link holds.
    pub(crate) fn open_end(&mut self, id: u64) -> Option<&mut Endpoint> {
        self.endpoints.get_mut(&id).filter(|end| end.is_open() && !end.severed)
    }

    /// Sends `action` to the host of the peer of end `from`.
    pub(crate) fn transmit(
        &mut self,
        from: u64,
        channel: Channel,
        octets: usize,
        action: impl FnOnce(&mut State) + std::marker::Send + 'static,
    ) {
        let now = self.now;
        let Some(end) = self.endpoints.get_mut(&from) else { return };
        if end.severed {
            return;
        }
        let at = now.saturating_add(end.link.delay(&self.random, octets));
        let at = end.arrival(channel, at);
        let route = Route { from: end.info.local.ip(), to: end.info.peer.ip(), sender: Some(from) };
        let action: Action = Box::new(action);
        self.after(at - now, move |state| state.arrive(route, action));
    }

    /// Schedules `action` at end `id` itself, a little later.
    pub(crate) fn locally(
        &mut self,
        id: u64,
        channel: Channel,
        action: impl FnOnce(&mut State) + std::marker::Send + 'static,
    ) {
        let now = self.now;
        let Some(end) = self.endpoints.get_mut(&id) else { return };
        let at = now.saturating_add(end.link.delay(&self.random, 0));
        let at = end.arrival(channel, at);
        self.after(at - now, action);
    }

    /// Gives a completion to the owner of end `id`.
    pub(crate) fn complete(&mut self, id: u64, completion: Completion) {
        let Some(end) = self.endpoints.get_mut(&id) else { return };
        let brings_memory = match &completion {
            Completion::Received { .. } | Completion::Read { .. } | Completion::Fenced { .. } => true,
            Completion::Failed { buffer, .. } => buffer.is_some(),
            _ => false,
        };
        end.returned += u64::from(brings_memory);
        let happening = Happening::of(&completion);
        end.completions.push_back(completion);
        end.wake();
        if let Some(happening) = happening {
            self.record(Event::Completed { connection: id / 2, side: side(id), happening });
        }
    }
}
