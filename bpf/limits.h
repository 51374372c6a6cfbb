/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_LIMITS_H
#define PERFBPF_LIMITS_H

/* Sizes that the kernel side and the user side agree on. Plain integer macros: both compilers read them. */

/* Slots of the table of what is known of processes by the lowest bits of their number (HINT_*): a power of two. */
#define LIMIT_TARGET_HINTS 65536

/* Bytes of plaintext in one DATA record: a TLS record carries at most 2^14 (RFC 8446 section 5.1), so nearly
 * every read or write is one record. Larger transfers go in chunks of this size with rising `pos`. */
#define LIMIT_CHUNK_BYTES 16384

/* Plaintext copied of one request (bytes written since the last successful read of that connection). Agents send
 * 20-400 KB; past this only the position advances (EV_F_CAPPED), which is a choice and not a loss. */
#define LIMIT_REQUEST_BYTES (1024 * 1024)

/* Chunks one call may emit: a single read or write larger than this many chunks is capped. */
#define LIMIT_CHUNKS_PER_CALL (LIMIT_REQUEST_BYTES / LIMIT_CHUNK_BYTES)

/* Framing is wanted to the end. So past the limit the headers of HTTP/2's frames are copied where a call begins with
 * one (so many frames up to the limit and behind it: most have 16 KiB); of other calls the first and the last bytes: a
 * header of WebSocket's (14), a chunk's size, what ends a chunk. More of the last ones where the limit is of each call
 * (reads; with --http writes too): frames of HTTP/2 are found by three headers. */
#define LIMIT_CAPPED_FRAMES	4096
#define LIMIT_CAPPED_END_BYTES	16
#define LIMIT_CAPPED_TAIL_BYTES (4 * LIMIT_CHUNK_BYTES)

/* TLS calls that may be open on one thread at once: a write nests in a read (node), a callback nests deeper. */
#define LIMIT_NEST 8

/* Probed files that the kernel tells apart: the slots of attached_ns[]. A power of two; slot 0 is nobody's. */
#define LIMIT_PROBED_FILES 1024

/* Threads that were given no storage, alive at once. */
#define LIMIT_UNSTORED 1024

/* Goroutines inside a TLS call at once. */
#define LIMIT_GOROUTINES 65536

/* Traced processes, and live TLS connections, at once. A full map is counted, never evicted silently. */
#define LIMIT_TARGETS 65536
#define LIMIT_CONNS   65536

/* Processes that have ended and whose parents are not told yet, at once. */
#define LIMIT_LEAVING 4096

/* Connections whose latest bytes were lost, between two looks of user space 10 ms apart. */
#define LIMIT_TAILS 4096

/* Connections in memory that a thread wrote to, whose sends it has not made yet. Past it the oldest is forgotten. */
#define LIMIT_WRITES   16
#define WRITE_WAITS_NS 1000000000ull /* what was written so long ago has been sent */

/* Socket votes that one connection may emit before it is bound (base rate of CONN_SOCK records). */
#define LIMIT_SOCK_VOTES 32
/* Of half a connection, whose votes are proof each: more than one, because they might contradict. */
#define LIMIT_HALF_VOTES 8

/* A socket that is not known to carry plain HTTP: so many system calls and bytes of each direction are looked at, then
 * it never will be. More than one, because a connection met in the middle may begin with the rest of a body. */
#define LIMIT_PLAIN_LOOKS      16
#define LIMIT_PLAIN_LOOK_BYTES 65536
/* A request of SOCKS 4 with the names of a user and a host. */
#define LIMIT_SOCKS_BYTES 530

/* Children whose standard input and output come from their parent, at once; and how far the parent's descriptors are
 * searched for the other ends. */
#define LIMIT_STDIO	4096
#define LIMIT_STDIO_FDS 1024

/* Of the first message over such a pair so many bytes are searched for "jsonrpc": an initialize request has a few
 * hundred. In one write, or in so many (one that is met in the middle may begin with the rest of a message). */
#define LIMIT_JSONRPC_BYTES 4096
#define LIMIT_JSONRPC_LOOKS 16

/* Elements of an iovec (UIO_MAXIOV of the kernel) that one call may have. */
#define LIMIT_IOVECS 1024

/* When more comes than is drained (user/attach/overload.h): how much is copied. */
#define OVERLOAD_NONE		     0
#define OVERLOAD_PAYLOAD	     1
#define OVERLOAD_HEADS		     2
#define OVERLOAD_CONNECTIONS	     3
#define LIMIT_OVERLOAD_REQUEST_BYTES 16384
#define LIMIT_OVERLOAD_READ_BYTES    4096
#define LIMIT_OVERLOAD_HEAD_BYTES    1024

/* Connections that carry nothing of interest: of each write so many bytes are copied, enough for the head of a
 * request; reads become one record a so many bytes, without any. */
#define LIMIT_IGNORED_WRITE_BYTES 4096
#define LIMIT_IGNORED_READ_BYTES  (1024 * 1024)
/* Slots of the table of ignored generations, by their lowest bits: a power of two. */
#define LIMIT_IGNORED 65536
/* Slots of the table of bodies that are passed over (--http), by the lowest bits of the generation: a power of two. */
#define LIMIT_PASSED 4096

/* Bytes kept of the greeting of a TLS connection (ClientHello): the name of the host is in it. */
#define LIMIT_HELLO_BYTES 2048

/* Bytes kept of what a proxy is asked for and answers: the line "CONNECT HOST:PORT HTTP/1.1" with the longest host, and
 * the status line. */
#define LIMIT_TUNNEL_BYTES 288
/* A send of at most so many bytes, while an answer comes, is no request: acknowledgements of HTTP/2 (13 bytes a frame),
 * or the end of a TLS 1.3 handshake (80), each in a record. */
#define LIMIT_WIRE_SMALL 100

/* Bytes that waited for less, in the kernel for the program or on the way for a retransmission, are not told: nobody
 * feels it, and a busy program would tell of every read. */
#define LIMIT_DELAY_NS 5000000ull

/* Bytes of a file name and of an argument vector kept from an exec. */
#define LIMIT_FILENAME_BYTES 256
#define LIMIT_ARGS_BYTES     1024

/* Bytes of a statement's text that SQLite prepares. */
#define LIMIT_SQL_BYTES 4096

/* Functions that are traced by name (-f): a power of two. Calls of them that are open on one thread: recursion. */
#define LIMIT_FUNCS	32
#define LIMIT_FUNC_NEST 64
/* Spans told of one function in FUNC_WINDOW_NS: 1,000 a second. The other calls are counted. */
#define LIMIT_FUNC_SPANS 100
#define FUNC_WINDOW_NS	 100000000ull

/* Bytes of a message of DNS: with EDNS (RFC 6891) resolvers ask for 1232, and what they need comes first. */
#define LIMIT_DNS_BYTES 1024

/* Bytes of the id of a tool call. Clients give them some 30. */
#define LIMIT_TOOL_CALL_BYTES 128

/* Frames of a stack: what the kernel walks at most by default (kernel.perf_event_max_stack), and as many of its own as
 * tell what a system call does. */
#define LIMIT_USER_FRAMES   127
#define LIMIT_KERNEL_FRAMES 48

/* Threads of targets that wait, at once. */
#define LIMIT_WAITING 65536

/* Slots of the sums of allocations, by the lowest bits of the processor's number: a power of two. */
#define LIMIT_ALLOC_SLOTS 64

/* Functions that are probed at once, of those whose callers are counted: 64 of each of 8 files. */
#define LIMIT_ALLOC_SITES 512
/* Sampled allocations whose end is looked for, at once. */
#define LIMIT_FOLLOWED 65536
/* How far from each other two functions' stack pointers are where one of them hands on to the other, and how far into
 * itself it calls it. */
#define LIMIT_ALLOC_FRAME 1024

/* TASK_COMM_LEN of the kernel. */
#define LIMIT_COMM_BYTES 16

#endif
