#ifndef NSBOX_NSBOX_H
#define NSBOX_NSBOX_H

/* The C interface of libnsbox: sandboxes for many commands, described by documents (doc/document.md).
 *
 * Ownership: what a function of the name nsbox_X_new, nsbox_sandbox_create, nsbox_spawn, nsbox_run or
 * nsbox_run_in gives belongs to the caller, who gives it to the nsbox_X_free of its kind, once; that takes NULL
 * too. Texts that an accessor returns belong to the object and live as long as it does. Texts and memory that
 * are passed in are copied. Descriptors that are passed in stay the caller's, and those that an accessor
 * returns belong to the object; all are close-on-exec.
 *
 * Errors: functions that can fail return NULL or -1, and put an nsbox_error where `error` points unless it is
 * NULL; it is the caller's to free. What succeeds leaves it alone. A NULL for an object is the error EINVAL. A failed
 * allocation ends the process. No C++ exception is thrown.
 *
 * Threads: different objects may be used by different threads at once. Of one sandbox nsbox_spawn, nsbox_run_in,
 * nsbox_write_file and nsbox_read_file may be called by any number of threads, of one process nsbox_process_signal,
 * nsbox_process_kill, nsbox_process_resize and the accessors while another thread waits. Nothing else.
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
NSBOX_API void nsbox_sandbox_free(nsbox_sandbox* sandbox);

/** Starts a command; returns when it is being executed. Errors as execve(2) has them; ESRCH where the sandbox has
 * ended. */
NSBOX_API nsbox_process* nsbox_spawn(const nsbox_sandbox* sandbox, const nsbox_command* command,
                                     nsbox_error** error);

/** Writes a file below the working directory, with the permissions `mode`: 0, or -1. See Sandbox::write_file in
 * nsbox.hpp. */
NSBOX_API int nsbox_write_file(const nsbox_sandbox* sandbox, const char* path, const void* content,
                               size_t size, unsigned mode, nsbox_error** error);

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
    NSBOX_REASON_EXITED = 0,
    NSBOX_REASON_TIME_LIMIT = 1,
    NSBOX_REASON_OUT_OF_MEMORY = 6,
    NSBOX_REASON_SANDBOX_ENDED = 7
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
} nsbox_status;

/** Waits at most `milliseconds`, or without an end where that is negative: 1 when the command has ended, 0 when
 * it still runs, -1. `status` may be NULL. */
NSBOX_API int nsbox_process_wait(nsbox_process* process, int64_t milliseconds, nsbox_status* status,
                                 nsbox_error** error);
/** Readable (poll(2)) when waiting will not block; -1 for NULL, as below. */
NSBOX_API int nsbox_process_descriptor(const nsbox_process* process);
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

#ifdef __cplusplus
}
#endif

#endif
