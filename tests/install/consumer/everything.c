/* Uses every function of nsbox.h, and says where one does not do what its comment says. */

#include <nsbox/nsbox.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int wrong;

static void check(int holds, const char* what, int line)
{
    if (!holds) {
        printf("line %d: %s\n", line, what);
        wrong = 1;
    }
}
#define CHECK(...) check((__VA_ARGS__) ? 1 : 0, #__VA_ARGS__, __LINE__)

static const char document[] =
    "{\"version\": 1, \"command\": [\"sh\", \"-c\", \"echo from the document\"],"
    " \"env\": {\"COLOR\": \"blue\"}, \"hostname\": \"box\"}";

static nsbox_command* shell(const char* script)
{
    const char* words[3] = {"sh", "-c", NULL};
    words[2] = script;
    return nsbox_command_new(words, 3);
}

static void errors(void)
{
    nsbox_error* error = NULL;
    const char bad[] = "{\"version\": 1, \"memory\": \"much\"}";
    CHECK(nsbox_document_check(document, strlen(document), NULL) == 0);
    CHECK(nsbox_document_check(bad, strlen(bad), &error) == -1);
    CHECK(strcmp(nsbox_error_object(error), "/memory") == 0);
    CHECK(strcmp(nsbox_error_operation(error), "Can't use the document") == 0);
    CHECK(nsbox_error_code(error) == 0);
    CHECK(strcmp(nsbox_error_message(error),
                 "Can't use the document /memory: it is a text, and has to be a number") == 0);
    CHECK(strcmp(nsbox_error_hint(error), "") == 0);
    nsbox_error_free(error);
    error = NULL;
    CHECK(nsbox_sandbox_create(NULL, 0, &error) == NULL);
    CHECK(error != NULL);
    nsbox_error_free(error);
    /* Nothing is an error, or nothing at all. */
    error = NULL;
    CHECK(nsbox_spawn(NULL, NULL, &error) == NULL && nsbox_error_code(error) == EINVAL);
    nsbox_error_free(error);
    CHECK(nsbox_write_file(NULL, "x", "", 0, 0644, NULL) == -1);
    CHECK(nsbox_read_file(NULL, "x", 1, NULL) == NULL);
    CHECK(nsbox_process_wait(NULL, 0, NULL, NULL) == -1);
    CHECK(nsbox_process_signal(NULL, 1, NULL) == -1 && nsbox_process_kill(NULL, NULL) == -1);
    CHECK(nsbox_process_resize(NULL, 1, 1, NULL) == -1);
    CHECK(nsbox_run(document, strlen(document), NULL, NULL, NULL) == NULL);
    CHECK(nsbox_run_in(NULL, NULL, NULL, NULL) == NULL);
    CHECK(nsbox_outcome_status(NULL, NULL) == -1 && nsbox_outcome_is_cut(NULL) == 0);
    CHECK(nsbox_command_set_stream(NULL, 0, NSBOX_STREAM_NULL, -1) == -1);
    nsbox_error_free(NULL);
    nsbox_command_free(NULL);
    nsbox_sandbox_close(NULL);
    nsbox_sandbox_free(NULL);
    nsbox_process_free(NULL);
    nsbox_text_free(NULL);
    nsbox_outcome_free(NULL);
}

static void streams(nsbox_sandbox* sandbox)
{
    nsbox_status status;
    char buffer[64] = "";
    nsbox_command* const command =
        shell("read -r x; echo \"$x $COLOR $SIZE\"; echo end >&2; exit 4");
    nsbox_process* process;
    struct pollfd ended;
    CHECK(nsbox_command_set_stream(command, 0, NSBOX_STREAM_PIPE, -1) == 0);
    CHECK(nsbox_command_set_stream(command, 1, NSBOX_STREAM_PIPE, -1) == 0);
    CHECK(nsbox_command_set_stream(command, 2, NSBOX_STREAM_OUTPUT, -1) == 0);
    CHECK(nsbox_command_set_stream(command, 3, NSBOX_STREAM_PIPE, -1) == -1);
    CHECK(nsbox_command_set_stream(command, 2, 9, -1) == -1);
    nsbox_command_set_variable(command, "SIZE", "large");
    process = nsbox_spawn(sandbox, command, NULL);
    CHECK(process != NULL);
    memset(&status, 0, sizeof status);
    status.size = sizeof status;
    CHECK(nsbox_process_wait(process, 0, &status, NULL) == 0);
    CHECK(nsbox_process_pid(process) > 0);
    CHECK(write(nsbox_process_input(process), "typed\n", 6) == 6);
    nsbox_process_close_input(process);
    CHECK(nsbox_process_input(process) == -1 && nsbox_process_error(process) == -1);
    CHECK(nsbox_process_terminal(process) == -1);
    ended.fd = nsbox_process_descriptor(process);
    ended.events = POLLIN;
    CHECK(poll(&ended, 1, 20000) == 1);
    CHECK(nsbox_process_wait(process, -1, &status, NULL) == 1);
    CHECK(status.code == 4 && status.signal == 0 && status.shell_code == 4);
    CHECK(status.reason == NSBOX_REASON_EXITED && status.max_rss_kib > 0);
    CHECK(read(nsbox_process_output(process), buffer, sizeof buffer - 1) > 0);
    CHECK(strcmp(buffer, "typed blue large\nend\n") == 0);
    nsbox_process_free(process);
    nsbox_command_free(command);
}

static void signals(nsbox_sandbox* sandbox)
{
    nsbox_error* error = NULL;
    nsbox_status status;
    nsbox_command* const command = shell("exec sleep 1000");
    nsbox_process* const process = nsbox_spawn(sandbox, command, NULL);
    memset(&status, 0, sizeof status);
    status.size = offsetof(nsbox_status, shell_code); /* An older caller. */
    status.shell_code = 77;
    CHECK(nsbox_process_signal(process, SIGTERM, NULL) == 0);
    CHECK(nsbox_process_wait(process, 20000, &status, NULL) == 1);
    CHECK(status.signal == SIGTERM && status.shell_code == 77);
    CHECK(nsbox_process_signal(process, SIGTERM, &error) == -1);
    CHECK(nsbox_error_code(error) == ESRCH);
    CHECK(nsbox_process_kill(process, NULL) == 0);
    nsbox_error_free(error);
    nsbox_process_free(process);
    nsbox_command_free(command);
}

static void terminal(nsbox_sandbox* sandbox)
{
    char buffer[64] = "";
    nsbox_command* const command = shell("stty size; read -r x; stty size");
    nsbox_process* process;
    nsbox_command_set_terminal(command, 11, 22);
    process = nsbox_spawn(sandbox, command, NULL);
    CHECK(read(nsbox_process_terminal(process), buffer, sizeof buffer - 1) > 0);
    CHECK(strncmp(buffer, "11 22", 5) == 0);
    CHECK(nsbox_process_resize(process, 33, 44, NULL) == 0);
    CHECK(write(nsbox_process_terminal(process), "\n", 1) == 1);
    CHECK(nsbox_process_wait(process, 20000, NULL, NULL) == 1);
    nsbox_process_free(process);
    nsbox_command_free(command);
}

static void files(nsbox_sandbox* sandbox)
{
    nsbox_error* error = NULL;
    nsbox_text* text;
    int ends[2];
    nsbox_command* const command = shell("cat a/file; cat <&5; pwd");
    nsbox_outcome* outcome;
    CHECK(nsbox_write_file(sandbox, "a/file", "content\n", 8, 0644, NULL) == 0);
    CHECK(nsbox_write_file(sandbox, "../file", "", 0, 0644, &error) == -1);
    CHECK(nsbox_error_code(error) == EXDEV);
    nsbox_error_free(error);
    text = nsbox_read_file(sandbox, "a/file", 100, NULL);
    CHECK(nsbox_text_size(text) == 8 && strcmp(nsbox_text_data(text), "content\n") == 0);
    nsbox_text_free(text);
    CHECK(nsbox_read_file(sandbox, "a/file", 2, NULL) == NULL);
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], "lent\n", 5) == 5);
    close(ends[1]);
    nsbox_command_add_descriptor(command, ends[0], 5);
    outcome = nsbox_run_in(sandbox, command, NULL, NULL);
    close(ends[0]);
    CHECK(strcmp(nsbox_outcome_output(outcome, NULL), "content\nlent\n/home/sandbox\n") == 0);
    nsbox_command_set_directory(command, "/nowhere");
    CHECK(nsbox_run_in(sandbox, command, NULL, &error) == NULL);
    CHECK(nsbox_error_code(error) == ENOENT);
    nsbox_error_free(error);
    nsbox_outcome_free(outcome);
    nsbox_command_free(command);
}

static void runs(void)
{
    nsbox_status status;
    nsbox_run_options options;
    size_t size = 0;
    nsbox_command* const own = nsbox_command_new(NULL, 0);
    nsbox_command* const command = shell("cat; echo error >&2; hostname; exec sleep 1000");
    nsbox_outcome* outcome = nsbox_run(document, strlen(document), own, NULL, NULL);
    CHECK(strcmp(nsbox_outcome_output(outcome, &size), "from the document\n") == 0 && size == 18);
    nsbox_outcome_free(outcome);
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.input = "fed\n";
    options.input_size = 4;
    options.milliseconds = 700;
    options.most = 6;
    outcome = nsbox_run(document, strlen(document), command, &options, NULL);
    memset(&status, 0, sizeof status);
    status.size = sizeof status;
    CHECK(nsbox_outcome_status(outcome, &status) == 0);
    CHECK(status.reason == NSBOX_REASON_TIME_LIMIT && status.shell_code == 124);
    CHECK(strcmp(nsbox_outcome_output(outcome, NULL), "fed\nbo") == 0);
    CHECK(strcmp(nsbox_outcome_error(outcome, NULL), "error\n") == 0);
    CHECK(nsbox_outcome_is_cut(outcome) == 1);
    nsbox_outcome_free(outcome);
    nsbox_command_free(command);
    nsbox_command_free(own);
}

int main(void)
{
    nsbox_error* error = NULL;
    nsbox_command* const command = shell("true");
    nsbox_sandbox* const sandbox = nsbox_sandbox_create(document, strlen(document), &error);
    if (sandbox == NULL) {
        printf("%s\n", nsbox_error_message(error));
        return 1;
    }
    errors();
    streams(sandbox);
    signals(sandbox);
    terminal(sandbox);
    files(sandbox);
    runs();
    nsbox_sandbox_close(sandbox);
    CHECK(nsbox_spawn(sandbox, command, &error) == NULL && nsbox_error_code(error) == ESRCH);
    nsbox_error_free(error);
    nsbox_command_free(command);
    nsbox_sandbox_free(sandbox);
    printf("nsbox %s: %s\n", nsbox_version(), wrong ? "wrong" : "right");
    return wrong;
}
