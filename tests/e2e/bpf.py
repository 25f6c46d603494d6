"""Just enough of an assembler to write the seccomp filters of the tests, for x86-64 and arm64."""

import os
import struct

LOAD_WORD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, KILL_PROCESS = 0x7FFF0000, 0x80000000
NUMBER, ARCHITECTURE = 0, 4          # offsets into struct seccomp_data
FIRST_ARGUMENT = 16
TIOCSTI = 0x5412

ON_X86 = os.uname().machine == "x86_64"
AUDIT_ARCH = 0xC000003E if ON_X86 else 0xC00000B7

# name:number on x86-64:number on arm64; a dash where the architecture lacks the call.
NUMBERS = """
    brk:12:214 clock_getres:229:114 clock_gettime:228:113 clock_nanosleep:230:115 execve:59:221
    exit:60:93 exit_group:231:94 futex:202:98 futex_waitv:449:449 get_robust_list:274:100
    get_thread_area:211:- getegid:108:177 geteuid:107:175 getgid:104:176 getgroups:115:158
    getpgid:121:155 getpgrp:111:- getpid:39:172 getppid:110:173 getrandom:318:278
    getresgid:120:150 getresuid:118:148 getrlimit:97:163 getsid:124:156 gettid:186:178
    gettimeofday:96:169 getuid:102:174 membarrier:324:283 mmap:9:222 munmap:11:215
    nanosleep:35:101 pause:34:- prlimit64:302:261 restart_syscall:219:128 rseq:334:293
    rt_sigreturn:15:139 sched_getaffinity:204:123 sched_yield:24:124 set_robust_list:273:99
    set_thread_area:205:- set_tid_address:218:96 time:201:-

    close:3:57 close_range:436:436 dup:32:23 dup2:33:- dup3:292:24 lseek:8:62 pread64:17:67
    preadv:295:69 preadv2:327:286 pwrite64:18:68 pwritev:296:70 pwritev2:328:287 read:0:63
    readv:19:65 write:1:64 writev:20:66

    access:21:- chdir:80:49 chmod:90:- creat:85:- faccessat:269:48 faccessat2:439:439
    fallocate:285:47 fchdir:81:50 fchmod:91:52 fchmodat:268:53 fchmodat2:452:452 fcntl:72:25
    fgetxattr:193:10 flistxattr:196:13 fremovexattr:199:16 fsetxattr:190:7 fstat:5:80
    fstatfs:138:44 ftruncate:77:46 futimesat:261:- getcwd:79:17 getdents:78:- getdents64:217:61
    getxattr:191:8 inotify_add_watch:254:27 inotify_init:253:- inotify_init1:294:26
    inotify_rm_watch:255:28 lgetxattr:192:9 link:86:- linkat:265:37 listxattr:194:11
    llistxattr:195:12 lremovexattr:198:15 lsetxattr:189:6 lstat:6:- mkdir:83:- mkdirat:258:34
    mknod:133:- mknodat:259:33 newfstatat:262:79 open:2:- openat:257:56 openat2:437:437
    readlink:89:- readlinkat:267:78 removexattr:197:14 rename:82:- renameat:264:38
    renameat2:316:276 rmdir:84:- setxattr:188:5 stat:4:- statfs:137:43 statx:332:291 symlink:88:-
    symlinkat:266:36 truncate:76:45 unlink:87:- unlinkat:263:35 utime:132:- utimensat:280:88
    utimes:235:-

    arch_prctl:158:- ioctl:16:29 madvise:28:233 mprotect:10:226 mremap:25:216 prctl:157:167
    umask:95:166
"""
EXTRA = "chroot:161:51 clone3:435:435 listen:50:201"


def table(text):
    rows = (row.split(":") for row in text.split())
    numbers = {name: x86 if ON_X86 else arm for name, x86, arm in rows}
    return {name: int(number) for name, number in numbers.items() if number != "-"}


# What an allow-list of systemd's sets @default, @basic-io and @filesystem lets pass, plus what
# the C library needs on top to start a program.
USUAL = table(NUMBERS)
SYSCALLS = dict(USUAL, **table(EXTRA))


def refuse(errno):
    return 0x00050000 | errno


def instruction(code, k, on_true=0, on_false=0):
    return struct.pack("=HBBI", code, on_true, on_false, k)


def start():
    """Every filter begins by ending whoever speaks another architecture's numbers."""
    return [instruction(LOAD_WORD, ARCHITECTURE), instruction(JUMP_EQUAL, AUDIT_ARCH, 1, 0),
            instruction(RETURN, KILL_PROCESS), instruction(LOAD_WORD, NUMBER)]


def answer(number, action):
    return [instruction(JUMP_EQUAL, number, 0, 1), instruction(RETURN, action)]


def allow_list(names, otherwise):
    """Lets the named calls pass and answers the rest with the errno `otherwise`."""
    code = start()
    for name in names:
        code += answer(SYSCALLS[name], ALLOW)
    return b"".join([*code, instruction(RETURN, refuse(otherwise))])


def deny_list(names, errno, ioctl_requests=()):
    """Answers the named calls with `errno`, and an ioctl whose request has one of these numbers
    in its low half, which is all that the kernel looks at. The rest passes."""
    code = start()
    for name in names:
        code += answer(SYSCALLS[name], refuse(errno))
    if ioctl_requests:
        tail = [instruction(LOAD_WORD, FIRST_ARGUMENT + 8)]
        for request in ioctl_requests:
            tail += answer(request, refuse(errno))
        code += [instruction(JUMP_EQUAL, SYSCALLS["ioctl"], 0, len(tail)), *tail]
    return b"".join([*code, instruction(RETURN, ALLOW)])
