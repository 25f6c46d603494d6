// A program without a C library: returns at once, or (built with -DSTAY) writes one byte to its
// standard output and stays until it is killed.
// glibc's start executes many CPUID instructions, each of which traps in a virtual machine; this
// program shows what a start costs without them, and is the cheapest thing to keep alive.
//
//   cc -O1 -static -nostdlib -ffreestanding -fno-stack-protector [-DSTAY] bare.c

#include <sys/syscall.h>

static long call(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
#else
#error "teach call() this architecture"
#endif
}

void _start(void);

void _start(void)
{
#ifdef STAY
    call(SYS_write, 1, (long)"!", 1, 0);
    for (;;)
        call(SYS_ppoll, 0, 0, 0, 0);
#endif
    for (;;)
        call(SYS_exit_group, 0, 0, 0, 0);
}
