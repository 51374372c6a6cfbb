#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""check_helpers.py OBJECT: every helper and kernel function that the BPF programs call only reads what is traced. What is called and is
not listed here fails: bpf_probe_write_user(), bpf_override_return(), bpf_send_signal() and their like never are. Speaks TAP."""
import struct
import sys

# By number (linux/bpf.h). What some of them write is a map, a storage or the ring: ours.
HELPERS = {
    1: "map_lookup_elem", 2: "map_update_elem", 3: "map_delete_elem", 5: "ktime_get_ns", 7: "get_prandom_u32", 8: "get_smp_processor_id", 14: "get_current_pid_tgid", 16: "get_current_comm",
    46: "get_socket_cookie", 67: "get_stack", 107: "sk_storage_get", 108: "sk_storage_delete", 112: "probe_read_user", 113: "probe_read_kernel",
    114: "probe_read_user_str", 115: "probe_read_kernel_str", 125: "ktime_get_boot_ns", 127: "seq_write", 131: "ringbuf_reserve",
    132: "ringbuf_submit", 134: "ringbuf_query", 137: "skc_to_tcp_sock", 141: "get_task_stack", 156: "task_storage_get",
    158: "get_current_task_btf", 162: "sock_from_file", 174: "get_attach_cookie", 175: "task_pt_regs", 181: "loop",
    198: "ringbuf_reserve_dynptr", 199: "ringbuf_submit_dynptr", 200: "ringbuf_discard_dynptr", 202: "dynptr_write",
}
FUNCTIONS = {"bpf_probe_read_user_dynptr", "bpf_session_is_return", "bpf_rdonly_cast"}

CALL, PSEUDO_CALL = 0x85, 1
EXECUTABLE, SYMBOLS, RELOCATIONS = 4, 2, 9


def sections(data):
    (offset,), (size, count, _) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HHH", data, 58)
    for i in range(count):
        _, kind, flags, _, at, length, link, info, _, _ = struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size)
        yield i, kind, flags, data[at:at + length], link, info


def symbols(data):
    """(name, whether it is defined in the object), by number."""
    every = list(sections(data))
    for _, kind, _, body, link, _ in every:
        if kind == SYMBOLS:
            text = every[link][3]
            rows = struct.iter_unpack("<IBBHQQ", body)
            return [(text[name:text.index(b"\0", name)].decode(), section != 0) for name, _, _, section, _, _ in rows]
    return []


def calls(data):
    """(helper number or None, function name or None) of every call that leaves the programs."""
    names, every = symbols(data), list(sections(data))
    where = {}  # (section, offset) -> symbol
    for _, kind, _, body, _, info in every:
        if kind == RELOCATIONS:
            for at, what in struct.iter_unpack("<QQ", body):
                where[info, at] = names[what >> 32]
    for number, _, flags, body, _, _ in every:
        if not flags & EXECUTABLE:
            continue
        for i, (code, registers, _, immediate) in enumerate(struct.iter_unpack("<BBhi", body)):
            if code != CALL:
                continue
            name, defined = where.get((number, 8 * i), ("?", registers >> 4 == PSEUDO_CALL))
            if registers >> 4 == 0:
                yield immediate, None
            elif not defined:
                yield None, name


def main():
    with open(sys.argv[1], "rb") as f:
        data = f.read()
    seen = set(calls(data))
    helpers = {h for h, _ in seen if h is not None}
    functions = {f for _, f in seen if f}
    strange = sorted(f"helper {h}" for h in helpers - set(HELPERS)) + sorted(functions - FUNCTIONS)
    print(f"# {len(helpers)} helpers: {', '.join(HELPERS.get(h, str(h)) for h in sorted(helpers))}; {', '.join(sorted(functions)) or 'no functions'}")
    print(f"{'not ok' if strange or len(helpers) < 10 else 'ok'} BPF programs call nothing that changes what is traced")
    for name in strange:
        print("#  ", name)
    return bool(strange)


if __name__ == "__main__":
    sys.exit(main())
