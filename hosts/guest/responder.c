/*
 * Meets the resume contract inside the guest: one datagram in, clock stepped, randomness renewed, one datagram out.
 *
 * A sleeping app's first visitor waits for exactly this, so it is not the Python agent's work: after a suspend the
 * translator meets every instruction anew, and an interpreter is very many of them. No library, no allocation, no state
 * but the last answer. The layout of both datagrams is in hosts/guest/contract.py, which is the other side.
 *
 * Arguments: own address, port, the only address that is listened to (IPv4, each as a decimal number in host order),
 * then paths; that one of them can be executed means that the app has a hook to be called.
 */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;

enum { SYS_ioctl = 16, SYS_access = 21, SYS_socket = 41, SYS_sendmsg = 46, SYS_recvmsg = 47,
       SYS_bind = 49, SYS_exit = 60, SYS_clock_settime = 227, SYS_clock_gettime = 228, SYS_open = 2 };
enum { AF_INET = 2, SOCK_DGRAM = 2, O_RDWR = 2, O_CLOEXEC = 02000000, X_OK = 1 };
enum { MSG_TRUNC = 0x20 }; /* the length is the one that was sent */
enum { CLOCK_REALTIME = 0, CLOCK_MONOTONIC = 1 };
enum { RNDADDENTROPY = 0x40085203, RNDRESEEDCRNG = 0x5207 };
enum { MAGIC_BYTES = 8, NONCE_BYTES = 16, ENTROPY_BYTES = 32 };
enum { MET = 0, CLOCK_FAILED = 1, RANDOM_FAILED = 2 };

struct request { u8 magic[MAGIC_BYTES]; u8 nonce[NONCE_BYTES]; u64 clock_ns; u8 entropy[ENTROPY_BYTES]; };
struct answer { u8 magic[MAGIC_BYTES]; u8 nonce[NONCE_BYTES]; u32 outcome, error, clock_us, random_us, hook; };
struct address { u16 family; u16 port; u32 ip; u8 zero[8]; };
struct part { void *at; u64 bytes; };
struct message { void *name; u32 name_bytes; struct part *parts; u64 part_count; void *control; u64 control_bytes;
                 int flags; };
struct time { u64 s, ns; };
struct pool { int entropy_bits, bytes; u8 entropy[ENTROPY_BYTES]; };

static const u8 MAGIC[MAGIC_BYTES] = { 'B', 'R', 'W', 'R', 'S', 'M', 0, 1 };

static long call(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile ("syscall" : "=a" (result) : "a" (number), "D" (a), "S" (b), "d" (c) : "rcx", "r11", "memory");
    return result;
}

static int same(const u8 *a, const u8 *b, u64 bytes)
{
    while (bytes--)
        if (*a++ != *b++)
            return 0;
    return 1;
}

static void copy(u8 *to, const u8 *from, u64 bytes)
{
    while (bytes--)
        *to++ = *from++;
}

static u32 number(const char *text)
{
    u32 value = 0;
    while (*text >= '0' && *text <= '9')
        value = value * 10 + (u32)(*text++ - '0');
    return value;
}

static u32 big_endian(u32 value)
{
    return value >> 24 | (value >> 8 & 0xff00) | (value << 8 & 0xff0000) | value << 24;
}

static u64 now_us(void)
{
    struct time now;
    call(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0);
    return now.s * 1000000 + now.ns / 1000;
}

static u32 set_clock(u64 ns)
{
    struct time wanted;
    wanted.s = ns / 1000000000;
    wanted.ns = ns % 1000000000;
    return (u32)-call(SYS_clock_settime, CLOCK_REALTIME, (long)&wanted, 0);
}

/* Credited, and every later read of /dev/urandom depends on it. */
static u32 add_entropy(long urandom, const u8 *entropy)
{
    struct pool pool;
    long result;
    pool.entropy_bits = ENTROPY_BYTES * 8;
    pool.bytes = ENTROPY_BYTES;
    copy(pool.entropy, entropy, ENTROPY_BYTES);
    result = call(SYS_ioctl, urandom, RNDADDENTROPY, (long)&pool);
    if (result == 0)
        result = call(SYS_ioctl, urandom, RNDRESEEDCRNG, 0);
    return (u32)-result;
}

/* Not on the stack: what is static starts as zeros, and no library is there to clear anything. */
static struct request request;
static struct answer answer;
static struct address own, peer;
static struct part in, out;
static struct message incoming, outgoing;

static void meet(long urandom, char **hooks)
{
    u64 start = now_us(), clock, random;
    answer.outcome = MET;
    answer.error = set_clock(request.clock_ns);
    clock = now_us();
    if (answer.error)
        answer.outcome = CLOCK_FAILED;
    else if ((answer.error = add_entropy(urandom, request.entropy)))
        answer.outcome = RANDOM_FAILED;
    random = now_us();
    answer.clock_us = (u32)(clock - start);
    answer.random_us = (u32)(random - clock);
    for (answer.hook = 0; *hooks && !answer.hook; hooks++)
        answer.hook = call(SYS_access, (long)*hooks, X_OK, 0) == 0;
}

int serve(long argc, char **argv)
{
    long urandom = call(SYS_open, (long)"/dev/urandom", O_RDWR | O_CLOEXEC, 0);
    long sock = call(SYS_socket, AF_INET, SOCK_DGRAM, 0);
    u32 host;

    if (argc < 4 || urandom < 0 || sock < 0)
        return 1;
    own.family = AF_INET;
    own.ip = big_endian(number(argv[1]));
    own.port = (u16)(big_endian(number(argv[2])) >> 16);
    host = big_endian(number(argv[3]));
    if (call(SYS_bind, sock, (long)&own, sizeof own) != 0)
        return 1;
    copy(answer.magic, MAGIC, MAGIC_BYTES);
    copy(answer.nonce, MAGIC, MAGIC_BYTES); /* no request's: a nonce is random */
    in.at = &request;
    in.bytes = sizeof request;
    out.at = &answer;
    out.bytes = sizeof answer;
    incoming.name = outgoing.name = &peer;
    incoming.parts = &in;
    outgoing.parts = &out;
    incoming.part_count = outgoing.part_count = 1;
    outgoing.name_bytes = sizeof peer;
    for (;;) {
        incoming.name_bytes = sizeof peer;
        /* Anything else is not answered: the app shares the machine, and whoever may not ask learns nothing. */
        if (call(SYS_recvmsg, sock, (long)&incoming, MSG_TRUNC) != sizeof request || peer.ip != host
            || !same(request.magic, MAGIC, MAGIC_BYTES))
            continue;
        /* The same request again lost its answer on the way, or is old: its clock is. */
        if (!same(request.nonce, answer.nonce, NONCE_BYTES)) {
            copy(answer.nonce, request.nonce, NONCE_BYTES);
            meet(urandom, argv + 4);
        }
        call(SYS_sendmsg, sock, (long)&outgoing, 0);
    }
}

/* The kernel's own start: the stack holds argc, then argv. */
void start_on(long *stack)
{
    call(SYS_exit, serve(stack[0], (char **)(stack + 1)), 0, 0);
}

__asm__ (".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall start_on\n");
