#ifndef NSBOX_NSBOX_H
#define NSBOX_NSBOX_H

/* The C interface of libnsbox: sandboxes, described by documents (doc/document.md).
 *
 * Ownership: an object of the type nsbox_X that a function gives belongs to the caller, who gives it to
 * nsbox_X_free, once; that takes NULL too. Texts that an accessor returns belong to the object and live as long as it does. Texts and memory that
 * are passed in are copied. Descriptors that are passed in stay the caller's, and those that an accessor
 * returns belong to the object; all are close-on-exec.
 *
 * Errors: functions that can fail return NULL or -1, and put an nsbox_error where `error` points unless it is
 * NULL; it is the caller's to free. What succeeds leaves it alone. A NULL for an object is the error EINVAL. A failed
 * allocation ends the process. No C++ exception is thrown.
 *
 * Threads: different objects may be used by different threads at once. Of one sandbox nsbox_spawn, nsbox_run_in,
 * nsbox_write_file, nsbox_read_file and what is about ports may be called by any number of threads, of one process
 * nsbox_process_signal, nsbox_process_kill, nsbox_process_resize and the accessors while another thread waits, of one
 * that was started nsbox_sandbox_signal, and of a pool everything but nsbox_pool_free. Nothing else.
 *
 * The host process: no signal handler is changed, no child's status is taken, nothing is written to standard output or
 * error. After a fork(2) handles belong to the parent. Needs Linux 5.10.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define NSBOX_API __attribute__((visibility("default")))
#else
#define NSBOX_API
#endif

/** The version of the library, "major.minor.patch". */
NSBOX_API const char* nsbox_version(void);

/* Errors. */

typedef struct nsbox_error nsbox_error;

/** A positive errno value, or 0 where nsbox itself refused. */
NSBOX_API int nsbox_error_code(const nsbox_error* error);
/** What was tried, as the beginning of a sentence: "Can't mkdir". */
NSBOX_API const char* nsbox_error_operation(const nsbox_error* error);
/** What it was tried on; may be empty. */
NSBOX_API const char* nsbox_error_object(const nsbox_error* error);
/** What the user can do about it; may be empty. */
NSBOX_API const char* nsbox_error_hint(const nsbox_error* error);
/** All of it as one line: "operation object: reason (hint: ...)". */
NSBOX_API const char* nsbox_error_message(const nsbox_error* error);
NSBOX_API void nsbox_error_free(nsbox_error* error);

/* Documents. */

/** Whether `size` bytes are a document that can be read: 0, or -1. No file is looked at. */
NSBOX_API int nsbox_document_check(const char* document, size_t size, nsbox_error** error);

/* Commands: descriptions of what is to run, which may be used any number of times. */

typedef struct nsbox_command nsbox_command;

/** `count` words, or those before a NULL, the first of which is found through the sandbox's PATH; none: the document's
 * "command". */
NSBOX_API nsbox_command* nsbox_command_new(const char* const* words, size_t count);
/** argv[0], if it is to be another than the first word. */
NSBOX_API void nsbox_command_set_argv0(nsbox_command* command, const char* argv0);
/** How long nsbox_spawn waits for the command to be executed, which what runs in the sandbox can hold up; default
 * 30000. */
NSBOX_API void nsbox_command_set_patience(nsbox_command* command, int64_t milliseconds);
/** In the sandbox; default as the document's "cwd". */
NSBOX_API void nsbox_command_set_directory(nsbox_command* command, const char* directory);
/** A variable beside those of the document; NULL for its value takes it away. */
NSBOX_API void nsbox_command_set_variable(nsbox_command* command, const char* name,
                                          const char* value);

/** Where a standard descriptor leads. */
enum nsbox_stream {
    NSBOX_STREAM_INHERIT = 0, /**< Where this process's own leads; the default but for the input. */
    NSBOX_STREAM_NULL = 1,    /**< To /dev/null; the default of the input. */
    NSBOX_STREAM_PIPE = 2,    /**< To a pipe, whose other end the nsbox_process has. */
    NSBOX_STREAM_DESCRIPTOR = 3, /**< To a descriptor of this process. */
    NSBOX_STREAM_OUTPUT = 4      /**< Of descriptor 2: to where the output leads. */
};
/** `number`: 0, 1 or 2. `kind`: an nsbox_stream; `descriptor` has a meaning with NSBOX_STREAM_DESCRIPTOR. 0, or -1 (EINVAL)
 * where one of them is none of these. */
NSBOX_API int nsbox_command_set_stream(nsbox_command* command, int number, int kind,
                                       int descriptor);
/** A terminal in place of the three; 0 leaves the kernel's default size. */
NSBOX_API void nsbox_command_set_terminal(nsbox_command* command, unsigned short rows,
                                          unsigned short columns);
/** A descriptor of this process, and its number in the command: 3 or more. */
NSBOX_API void nsbox_command_add_descriptor(nsbox_command* command, int descriptor, int number);
NSBOX_API void nsbox_command_free(nsbox_command* command);

/* Sandboxes. */

typedef struct nsbox_sandbox nsbox_sandbox;
typedef struct nsbox_process nsbox_process;

/** Builds a sandbox for many commands; it ends with nsbox_sandbox_free and with this process. Its root
 * filesystem, if the document names one, is imported first where that is needed. Blocks. */
NSBOX_API nsbox_sandbox* nsbox_sandbox_create(const char* document, size_t size,
                                              nsbox_error** error);
/** Ends everything in it and waits for that; further calls about it fail. */
NSBOX_API void nsbox_sandbox_close(nsbox_sandbox* sandbox);
/** Closes it first. */
NSBOX_API void nsbox_sandbox_free(nsbox_sandbox* sandbox);
/** Ends every command and makes the sandbox anew, with its network kept: 0, or -1. See Sandbox::reset in nsbox.hpp.
 * Nothing else may be called on it meanwhile. */
NSBOX_API int nsbox_sandbox_reset(nsbox_sandbox* sandbox, nsbox_error** error);
/** Its process 1, as this process's pid namespace numbers it; -1 for NULL. */
NSBOX_API int nsbox_sandbox_pid(const nsbox_sandbox* sandbox);

/** Starts a command; returns when it is being executed. Errors as execve(2) has them; ESRCH where the sandbox has
 * ended. */
NSBOX_API nsbox_process* nsbox_spawn(const nsbox_sandbox* sandbox, const nsbox_command* command,
                                     nsbox_error** error);

/** Writes a file below the working directory, with the permissions `mode`: 0, or -1. See Sandbox::write_file in
 * nsbox.hpp. */
NSBOX_API int nsbox_write_file(const nsbox_sandbox* sandbox, const char* path, const void* content,
                               size_t size, unsigned mode, nsbox_error** error);

/** What is otherwise than the document asks for, where that allows it: a sentence each, and NULL behind the last
 * one. */
NSBOX_API const char* nsbox_sandbox_note(const nsbox_sandbox* sandbox, size_t index);

typedef struct nsbox_text nsbox_text;

/** Reads a file below the working directory, of at most `most` bytes. */
NSBOX_API nsbox_text* nsbox_read_file(const nsbox_sandbox* sandbox, const char* path, size_t most,
                                      nsbox_error** error);
/** Its bytes; there is a NUL behind them. */
NSBOX_API const char* nsbox_text_data(const nsbox_text* text);
NSBOX_API size_t nsbox_text_size(const nsbox_text* text);
NSBOX_API void nsbox_text_free(nsbox_text* text);

/* Processes. */

/** Why a command ended as it did: Reason of nsbox.hpp. */
enum nsbox_reason {
    NSBOX_REASON_EXITED = 0, /**< By itself, or by a signal that is not nsbox's. */
    NSBOX_REASON_TIME_LIMIT = 1,
    NSBOX_REASON_CPU_LIMIT = 2,
    NSBOX_REASON_NETWORK_FAILED = 5, /**< The helper of the sandbox's network ended. */
    NSBOX_REASON_OUT_OF_MEMORY = 6,
    NSBOX_REASON_SANDBOX_ENDED = 7 /**< The sandbox that it ran in was closed, or has ended. */
};

/** How a command ended. The caller sets `size` to sizeof(nsbox_status), so that later versions know
 * which members there are. */
typedef struct nsbox_status {
    size_t size;
    int32_t code;         /**< The exit status, if no signal ended it. */
    int32_t signal;       /**< The signal that ended it, or 0. */
    int32_t reason;       /**< An nsbox_reason. */
    int32_t shell_code;   /**< As a shell says it; 124 where a limit of time ended it. */
    uint64_t user_us;     /**< Processor time, in microseconds... */
    uint64_t system_us;   /**< ...of it and of the children that it waited for. */
    uint64_t max_rss_kib; /**< The largest resident set, in KiB. */
    uint64_t oom_kills;   /**< Processes killed for want of memory, with "memory". */
} nsbox_status;

/** Waits at most `milliseconds`, or without an end where that is negative: 1 when the command has ended, 0 when
 * it still runs, -1. `status` may be NULL. */
NSBOX_API int nsbox_process_wait(nsbox_process* process, int64_t milliseconds, nsbox_status* status,
                                 nsbox_error** error);
/** Readable (poll(2)) when waiting will not block; -1 for NULL, as below. */
NSBOX_API int nsbox_process_descriptor(const nsbox_process* process);
/** A pidfd of it (pidfd_open(2)). The command is no child of this process. */
NSBOX_API int nsbox_process_pidfd(const nsbox_process* process);
/** As this process's pid namespace numbers it; -1 where it has none there, or has ended. */
NSBOX_API int nsbox_process_pid(const nsbox_process* process);
/** The ends of the pipes and the master of the terminal; -1 where there is none. */
NSBOX_API int nsbox_process_input(const nsbox_process* process);
NSBOX_API int nsbox_process_output(const nsbox_process* process);
NSBOX_API int nsbox_process_error(const nsbox_process* process);
NSBOX_API int nsbox_process_terminal(const nsbox_process* process);
/** So that the command reads the end of its input. */
NSBOX_API void nsbox_process_close_input(nsbox_process* process);
/** 0, or -1: ESRCH when the command has ended. */
NSBOX_API int nsbox_process_signal(const nsbox_process* process, int number, nsbox_error** error);
/** SIGKILL: 0, or -1. 0 too where the command has ended. */
NSBOX_API int nsbox_process_kill(const nsbox_process* process, nsbox_error** error);
/** What the terminal's size is now: 0, or -1. */
NSBOX_API int nsbox_process_resize(const nsbox_process* process, unsigned short rows,
                                   unsigned short columns, nsbox_error** error);
/** Kills the command if it still runs. */
NSBOX_API void nsbox_process_free(nsbox_process* process);

/* A command from its beginning to its end. */

typedef struct nsbox_outcome nsbox_outcome;

/** What nsbox_run is to keep to. The caller sets `size` to sizeof(nsbox_run_options). */
typedef struct nsbox_run_options {
    size_t size;
    const char* input; /**< What the command reads; NULL: nothing. */
    size_t input_size;
    int64_t milliseconds; /**< The time limit; 0: none. */
    size_t most;          /**< Bytes that are kept of each stream; 0: 16 MiB. */
} nsbox_run_options;

/** A sandbox for one command, whose output is read meanwhile. `options` may be NULL. Blocks. */
NSBOX_API nsbox_outcome* nsbox_run(const char* document, size_t size, const nsbox_command* command,
                                   const nsbox_run_options* options, nsbox_error** error);
/** The same in a sandbox that is there already, which is closed where the time limit is over. */
NSBOX_API nsbox_outcome* nsbox_run_in(nsbox_sandbox* sandbox, const nsbox_command* command,
                                      const nsbox_run_options* options, nsbox_error** error);
/** 0, or -1 for NULL. */
NSBOX_API int nsbox_outcome_status(const nsbox_outcome* outcome, nsbox_status* status);
/** What was written, and how many bytes; there is a NUL behind them. `size` may be NULL. */
NSBOX_API const char* nsbox_outcome_output(const nsbox_outcome* outcome, size_t* size);
NSBOX_API const char* nsbox_outcome_error(const nsbox_outcome* outcome, size_t* size);
/** Whether there was more of a stream than was to be kept. */
NSBOX_API int nsbox_outcome_is_cut(const nsbox_outcome* outcome);
NSBOX_API void nsbox_outcome_free(nsbox_outcome* outcome);

/** The same for a program's text, which `command`, its interpreter with options, finds as the file
 * /proc/self/fd/3; `count` arguments, or those before a NULL, follow. */
NSBOX_API nsbox_outcome* nsbox_run_script(const char* document, size_t size, const char* text,
                                          size_t text_size, const nsbox_command* command,
                                          const char* const* arguments, size_t count,
                                          const nsbox_run_options* options, nsbox_error** error);

/* Sandboxes for the document's "command" alone, with this process's standard descriptors. The document's limits of
 * time and its name have a meaning here. */

/** Builds it and starts the command; returns when that is being executed. Blocks. */
NSBOX_API nsbox_sandbox* nsbox_sandbox_start(const char* document, size_t size,
                                             nsbox_error** error);
/** Waits until the command has ended, and keeps the limits meanwhile: 0, or -1. Once. `status` may be NULL. What the
 * command has left in the background goes on, until nsbox_sandbox_kill or by itself. */
NSBOX_API int nsbox_sandbox_wait(nsbox_sandbox* sandbox, nsbox_status* status, nsbox_error** error);
/** Sends the command a signal: 0, or -1. ESRCH when it has ended. */
NSBOX_API int nsbox_sandbox_signal(nsbox_sandbox* sandbox, int number, nsbox_error** error);
/** Ends everything in it and waits for that. nsbox_sandbox_close does the same, and so does nsbox_sandbox_free where
 * nobody has waited. */
NSBOX_API void nsbox_sandbox_kill(nsbox_sandbox* sandbox);

/* Published ports, of sandboxes with a user-mode or veth network. */

enum nsbox_port_kind {
    NSBOX_PORT_TCP = 0,
    NSBOX_PORT_UDP = 1,
    NSBOX_PORT_UNIX_SOCKET = 2, /**< `path` on the host leads to the TCP port inside. */
    NSBOX_PORT_HOST_SOCKET = 3  /**< The TCP port inside leads to `path` on the host. */
};

/** The caller sets `size` to sizeof(nsbox_port). */
typedef struct nsbox_port {
    size_t size;
    int32_t kind;        /**< An nsbox_port_kind. */
    uint16_t host_port;  /**< 0: the kernel chooses. */
    uint16_t port;       /**< Inside. */
    const char* address; /**< Of the host; NULL or "": 127.0.0.1 and ::1. */
    const char* path;    /**< Of a unix socket; else NULL or "". */
    int32_t to_loopback; /**< Not 0: to the sandbox's 127.0.0.1, instead of its own address. */
} nsbox_port;

/** Publishes one more, which works when this returns: 0, or -1. `host_port`, unless it is NULL, gets the port of the
 * host. Errors as of bind(2); ENOTSUP without a network of that kind. */
NSBOX_API int nsbox_sandbox_add_port(nsbox_sandbox* sandbox, const nsbox_port* port,
                                     uint16_t* host_port, nsbox_error** error);
/** Takes the one with the same place away: 0, or -1. Connections that there are go on. */
NSBOX_API int nsbox_sandbox_remove_port(nsbox_sandbox* sandbox, const nsbox_port* port,
                                        nsbox_error** error);

typedef struct nsbox_ports nsbox_ports;

/** Those that there are now; NULL for NULL. */
NSBOX_API nsbox_ports* nsbox_sandbox_ports(const nsbox_sandbox* sandbox);
NSBOX_API size_t nsbox_ports_count(const nsbox_ports* ports);
/** Tells of one: 0, or -1 where there is none of that index. Its texts belong to the list. */
NSBOX_API int nsbox_ports_get(const nsbox_ports* ports, size_t index, nsbox_port* port);
NSBOX_API void nsbox_ports_free(nsbox_ports* ports);

/* Pools: sandboxes of one document that are ready for their commands. See nsbox/pool.hpp. */

typedef struct nsbox_pool nsbox_pool;

/** Keeps `count` ready, the first of which is made before this returns. `has_thread`, if it is not 0: a thread of the
 * pool's own makes the others and those that are missing; else nsbox_pool_refill does. */
NSBOX_API nsbox_pool* nsbox_pool_new(const char* document, size_t size, size_t count,
                                     int has_thread, nsbox_error** error);
/** A sandbox as nsbox_sandbox_create gives it, the caller's alone; made now where none is ready. */
NSBOX_API nsbox_sandbox* nsbox_pool_take(nsbox_pool* pool, nsbox_error** error);
/** Makes those that are missing: 0, or -1. Blocks. */
NSBOX_API int nsbox_pool_refill(nsbox_pool* pool, nsbox_error** error);
/** How many are ready. */
NSBOX_API size_t nsbox_pool_ready(const nsbox_pool* pool);
/** Readable (poll(2)) when some are missing; -1 for NULL. */
NSBOX_API int nsbox_pool_descriptor(const nsbox_pool* pool);
/** Ends those that wait, and the thread. Those that were taken go on. */
NSBOX_API void nsbox_pool_free(nsbox_pool* pool);

#ifdef __cplusplus
}
#endif

#endif
