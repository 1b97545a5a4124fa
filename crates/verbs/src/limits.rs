//! What a device can do, and what this crate uses of it: only this file decides from a device's attributes.

use crate::{config::Config, context::Context, sys::verbs};
use rpcrdma_fabric::{Capabilities, Fencing, HandleScope};

/// Bytes of private data that InfiniBand's connection manager leaves to the upper layer in a request (56 of its 92;
/// librdmacm's own header takes the rest).
const INFINIBAND_PRIVATE_DATA_BYTES: usize = 56;
/// The same for iWARP: the kernel counts them, together with four bytes of its own, in one byte.
const IWARP_PRIVATE_DATA_BYTES: usize = 251;
/// The low byte of a window's handle is ours to choose.
const WINDOW_HANDLE_BITS: u8 = 8;
/// The connection manager counts RDMA Reads in one byte, in which 255 means "as many as possible".
const MAX_DEPTH: i32 = 254;
/// Bytes in one message: InfiniBand allows at most 2^31; the same limit as in the other providers.
const MAX_MESSAGE_OCTETS: usize = 1 << 30;
/// The most slices in one message that this crate uses, even if a device can gather more: each takes room in every
/// element of the send queue.
const MAX_GATHER: i32 = 16;

/// Known deviations of devices from the interface, by the vendor's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quirks {
    /// Linux's soft-RoCE reports an invalidation by the kernel's bit, which has another meaning in libibverbs.
    pub(crate) kernel_invalidation_bit: bool,
    /// Linux's soft-iWARP library sends a wrong handle in a Send with Invalidate.
    pub(crate) no_send_with_invalidate: bool,
    /// Linux's soft-iWARP does not copy a long unsignaled Write: it gives its memory to TCP. If something is lost, TCP
    /// sends from this memory again, even after the Send behind the Write was reported: it then sends the memory's
    /// present contents.
    pub(crate) sends_again_from_memory: bool,
}

const VENDOR_SOFT_ROCE: u32 = 0x00FF_FFFF;
const VENDOR_SOFT_IWARP: u32 = 0x0062_6D74;

impl Quirks {
    pub(crate) fn of(vendor: u32) -> Self {
        Self {
            kernel_invalidation_bit: vendor == VENDOR_SOFT_ROCE,
            no_send_with_invalidate: vendor == VENDOR_SOFT_IWARP,
            sends_again_from_memory: vendor == VENDOR_SOFT_IWARP,
        }
    }
}

/// What a device can do.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) quirks: Quirks,
    /// Whether handles belong to memory windows of type 2, which are bound to a queue pair.
    pub(crate) windows: bool,
    pub(crate) iwarp: bool,
    /// Work requests in a send queue.
    pub(crate) send_queue: usize,
    /// Receives in a shared receive queue; zero if there are no such queues.
    pub(crate) shared_receives: usize,
    pub(crate) capabilities: Capabilities,
}

fn number(value: i32) -> usize {
    usize::try_from(value).unwrap_or(0)
}

impl Limits {
    /// The limits that follow from a device's attributes and the configuration.
    pub(crate) fn of(context: &Context, attributes: &verbs::DeviceAttributes, config: &Config) -> Self {
        Self::derive(context.is_iwarp(), attributes, config)
    }

    fn derive(iwarp: bool, attributes: &verbs::DeviceAttributes, config: &Config) -> Self {
        let quirks = Quirks::of(attributes.vendor_id);
        let typed = attributes.device_cap_flags & (verbs::DEVICE_WINDOWS_2A | verbs::DEVICE_WINDOWS_2B) != 0;
        let windows = typed && attributes.max_mw > 0;
        let queue = number(attributes.max_qp_wr);
        let send_queue = config.send_queue.min(queue);
        let completions = number(attributes.max_cqe);
        let receives = config.max_receives.min(queue).min(completions.saturating_sub(send_queue));
        // A shared queue belongs to one protection domain, and not every device lets connections of another domain use
        // it.
        let shareable = windows && attributes.max_srq > 0 && attributes.max_srq_sge > 0;
        let most_shared = number(attributes.max_srq_wr).min(completions.saturating_sub(send_queue));
        let shared_receives = if shareable { config.shared_receives.min(most_shared) } else { 0 };
        let depth = |device: i32, wish: u16| wish.min(u16::try_from(device.clamp(0, MAX_DEPTH)).unwrap_or(0));
        let capabilities = Capabilities {
            remote_invalidation: windows,
            send_with_invalidate: !quirks.no_send_with_invalidate,
            fencing: if windows { Fencing::Invalidation } else { Fencing::Deregistration },
            handle_scope: if windows { HandleScope::Connection } else { HandleScope::ProtectionDomain },
            unpredictable_handle_bits: if windows { WINDOW_HANDLE_BITS } else { 0 },
            shared_receives: shared_receives > 0,
            max_exposure_bytes: usize::try_from(attributes.max_mr_size).unwrap_or(usize::MAX).min(u32::MAX as usize),
            max_exposures: config.max_exposures.min(number(if windows {
                attributes.max_mw
            } else {
                attributes.max_mr
            })),
            max_message_bytes: MAX_MESSAGE_OCTETS,
            max_gather: number(attributes.max_sge.min(MAX_GATHER)),
            max_receives: receives,
            max_posted: config.max_posted,
            // V1-3.3.1-k, V2-4.2.1.1-g
            max_ird: depth(attributes.max_qp_rd_atom, config.max_ird),
            max_ord: depth(attributes.max_qp_init_rd_atom, config.max_ord),
            max_private_data: if iwarp { IWARP_PRIVATE_DATA_BYTES } else { INFINIBAND_PRIVATE_DATA_BYTES },
        };
        Self { quirks, windows, iwarp, send_queue, shared_receives, capabilities }
    }
}

#[cfg(test)]
impl Limits {
    /// The limits of a device that has enough of everything, and no quirks.
    pub(crate) fn of_nothing_special(iwarp: bool, config: &Config) -> Self {
        Self::derive(iwarp, &tests::attributes(|_| {}), config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn attributes(change: impl FnOnce(&mut verbs::DeviceAttributes)) -> verbs::DeviceAttributes {
        // SAFETY: numbers, for which zero is a value.
        let mut attributes: verbs::DeviceAttributes = unsafe { std::mem::zeroed() };
        attributes.max_qp_wr = 16_384;
        attributes.max_cqe = 32_767;
        attributes.max_sge = 32;
        attributes.max_mr = 4096;
        attributes.max_mr_size = u64::MAX;
        attributes.max_qp_rd_atom = 128;
        attributes.max_qp_init_rd_atom = 300;
        change(&mut attributes);
        attributes
    }

    #[test]
    fn windows_need_both_the_type_and_a_number() {
        let config = Config::default();
        for (flags, windows, expected) in
            [(0, 9, false), (1 << 24, 0, false), (1 << 17, 9, false), (1 << 23, 9, true), (1 << 24, 9, true)]
        {
            let attributes = attributes(|a| (a.device_cap_flags, a.max_mw) = (flags, windows));
            let limits = Limits::derive(false, &attributes, &config);
            assert_eq!((limits.windows, limits.capabilities.remote_invalidation), (expected, expected));
            let most = if expected { 9 } else { 4096 };
            assert_eq!(limits.capabilities.max_exposures, most);
        }
    }

    #[test]
    fn a_devices_limits_are_kept() {
        let config = Config { max_ord: u16::MAX, ..Config::default() };
        let small = attributes(|a| (a.max_qp_wr, a.max_cqe, a.max_sge, a.max_qp_rd_atom) = (100, 150, 6, 1));
        let limits = Limits::derive(true, &small, &config);
        assert_eq!((limits.send_queue, limits.capabilities.max_receives), (100, 50));
        assert_eq!((limits.capabilities.max_gather, limits.capabilities.max_ird), (6, 1));
        assert_eq!((limits.capabilities.max_ord, limits.capabilities.max_private_data), (254, 251));
        assert_eq!(Limits::derive(false, &small, &config).capabilities.max_private_data, 56);
    }

    #[test]
    fn pools_of_receives_need_the_option_windows_and_a_device_that_has_them() {
        let config = Config { shared_receives: 500, ..Config::default() };
        let shared = |config: &Config, change: fn(&mut verbs::DeviceAttributes)| {
            let attributes = attributes(|a| {
                (a.device_cap_flags, a.max_mw) = (verbs::DEVICE_WINDOWS_2B, 9);
                (a.max_srq, a.max_srq_wr, a.max_srq_sge) = (1, 1000, 1);
                change(a);
            });
            let limits = Limits::derive(false, &attributes, config);
            assert_eq!(limits.capabilities.shared_receives, limits.shared_receives > 0);
            limits.shared_receives
        };
        assert_eq!(shared(&config, |_| {}), 500);
        assert_eq!(shared(&Config::default(), |_| {}), 0);
        assert_eq!(shared(&config, |a| a.max_srq_wr = 499), 499);
        assert_eq!(shared(&config, |a| a.max_cqe = 256 + 400), 400, "one connection may take them all");
        for change in [
            |a: &mut verbs::DeviceAttributes| a.max_mw = 0,
            |a: &mut verbs::DeviceAttributes| a.max_srq = 0,
            |a: &mut verbs::DeviceAttributes| a.max_srq_wr = 0,
            |a: &mut verbs::DeviceAttributes| a.max_srq_sge = 0,
        ] {
            assert_eq!(shared(&config, change), 0);
        }
    }

    #[test]
    fn known_devices_are_taken_as_they_are() {
        let config = Config::default();
        let soft = |vendor| Limits::derive(false, &attributes(|a| a.vendor_id = vendor), &config);
        assert!(soft(VENDOR_SOFT_ROCE).quirks.kernel_invalidation_bit);
        assert!(!soft(VENDOR_SOFT_IWARP).capabilities.send_with_invalidate);
        assert!(soft(VENDOR_SOFT_IWARP).quirks.sends_again_from_memory);
        assert_eq!(soft(0x02C9).quirks, Quirks::default());
    }
}
