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
    nsbox_command_set_patience(command, 20000);
    process = nsbox_spawn(sandbox, command, NULL);
    CHECK(process != NULL);
    memset(&status, 0, sizeof status);
    status.size = sizeof status;
    CHECK(nsbox_process_wait(process, 0, &status, NULL) == 0);
    CHECK(nsbox_process_pid(process) > 0);
    CHECK(fcntl(nsbox_process_pidfd(process), F_GETFD) == FD_CLOEXEC);
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
    nsbox_command* const command =
        shell("cat a/file; cat <&5; pwd; cat /proc/$$/cmdline | head -c 5");
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
    nsbox_command_set_argv0(command, "other");
    outcome = nsbox_run_in(sandbox, command, NULL, NULL);
    close(ends[0]);
    CHECK(strcmp(nsbox_outcome_output(outcome, NULL), "content\nlent\n/home/sandbox\nother") == 0);
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

static void resets(nsbox_sandbox* sandbox)
{
    nsbox_error* error = NULL;
    nsbox_command* const command = shell("ls; readlink /proc/self/ns/net");
    nsbox_outcome* before;
    nsbox_outcome* after;
    CHECK(nsbox_sandbox_reset(sandbox, NULL) == 0);
    before = nsbox_run_in(sandbox, command, NULL, NULL);
    CHECK(strncmp(nsbox_outcome_output(before, NULL), "net:[", 5) == 0);
    CHECK(nsbox_write_file(sandbox, "file", "x", 1, 0644, NULL) == 0);
    CHECK(nsbox_sandbox_pid(sandbox) > 0 && nsbox_sandbox_note(sandbox, 0) == NULL);
    CHECK(nsbox_sandbox_reset(sandbox, NULL) == 0);
    after = nsbox_run_in(sandbox, command, NULL, NULL);
    CHECK(strcmp(nsbox_outcome_output(before, NULL), nsbox_outcome_output(after, NULL)) == 0);
    CHECK(nsbox_sandbox_reset(NULL, &error) == -1 && nsbox_error_code(error) == EINVAL);
    CHECK(nsbox_sandbox_wait(sandbox, NULL, NULL) == -1);
    CHECK(nsbox_sandbox_pid(NULL) == -1 && nsbox_sandbox_note(NULL, 0) == NULL);
    nsbox_error_free(error);
    nsbox_outcome_free(before);
    nsbox_outcome_free(after);
    nsbox_command_free(command);
}

static void starts(void)
{
    static const char quick[] =
        "{\"version\": 1, \"command\": [\"sh\", \"-c\", \"exit 5\"], \"timeout\": 60}";
    static const char slow[] = "{\"version\": 1, \"command\": [\"sleep\", \"1000\"], \"timeout\": "
                               "0.3, \"kill-after\": 0.1}";
    static const char endless[] = "{\"version\": 1, \"command\": [\"sleep\", \"1000\"]}";
    nsbox_error* error = NULL;
    nsbox_status status;
    nsbox_command* const command = shell("true");
    nsbox_sandbox* sandbox = nsbox_sandbox_start(quick, strlen(quick), NULL);
    memset(&status, 0, sizeof status);
    status.size = sizeof status;
    CHECK(nsbox_spawn(sandbox, command, &error) == NULL && nsbox_error_code(error) == ENOTSUP);
    nsbox_error_free(error);
    CHECK(nsbox_sandbox_wait(sandbox, &status, NULL) == 0);
    CHECK(status.code == 5 && status.reason == NSBOX_REASON_EXITED && status.oom_kills == 0);
    CHECK(nsbox_sandbox_wait(sandbox, &status, &error) == -1 && nsbox_error_code(error) == ECHILD);
    nsbox_error_free(error);
    nsbox_sandbox_free(sandbox);

    sandbox = nsbox_sandbox_start(slow, strlen(slow), NULL);
    CHECK(nsbox_sandbox_wait(sandbox, &status, NULL) == 0);
    CHECK(status.reason == NSBOX_REASON_TIME_LIMIT && status.shell_code == 124);
    nsbox_sandbox_free(sandbox);

    sandbox = nsbox_sandbox_start(endless, strlen(endless), NULL);
    CHECK(nsbox_sandbox_signal(sandbox, SIGTERM, NULL) == 0);
    CHECK(nsbox_sandbox_wait(sandbox, &status, NULL) == 0 && status.signal == SIGTERM);
    nsbox_sandbox_free(sandbox);

    /* What nobody waits for ends with its handle. */
    sandbox = nsbox_sandbox_start(endless, strlen(endless), NULL);
    CHECK(kill(nsbox_sandbox_pid(sandbox), 0) == 0);
    {
        const int pid = nsbox_sandbox_pid(sandbox);
        nsbox_sandbox_free(sandbox);
        CHECK(kill(pid, 0) == -1 && errno == ESRCH);
    }
    sandbox = nsbox_sandbox_start(endless, strlen(endless), NULL);
    nsbox_sandbox_kill(sandbox);
    CHECK(nsbox_sandbox_wait(sandbox, &status, NULL) == -1);
    nsbox_sandbox_free(sandbox);
    nsbox_sandbox_kill(NULL);
    CHECK(nsbox_sandbox_start("{", 1, NULL) == NULL);
    CHECK(nsbox_sandbox_signal(NULL, SIGTERM, NULL) == -1);
    nsbox_command_free(command);
}

static void published(void)
{
    static const char networked[] = "{\"version\": 1, \"net\": \"user\", \"publish\": "
                                    "[{\"address\": \"127.0.0.1\", \"port\": 80}]}";
    nsbox_error* error = NULL;
    nsbox_sandbox* const sandbox = nsbox_sandbox_create(networked, strlen(networked), &error);
    nsbox_ports* ports;
    nsbox_port port;
    uint16_t chosen = 0;
    if (sandbox == NULL) {
        CHECK(!"a sandbox with a network");
        printf("%s\n", nsbox_error_message(error));
        nsbox_error_free(error);
        return;
    }
    memset(&port, 0, sizeof port);
    port.size = sizeof port;
    port.kind = NSBOX_PORT_UDP;
    port.address = "127.0.0.1";
    port.port = 53;
    CHECK(nsbox_sandbox_add_port(sandbox, &port, &chosen, NULL) == 0 && chosen > 0);
    ports = nsbox_sandbox_ports(sandbox);
    CHECK(nsbox_ports_count(ports) == 2);
    CHECK(nsbox_ports_get(ports, 0, &port) == 0);
    CHECK(port.kind == NSBOX_PORT_TCP && port.port == 80 && port.host_port > 0);
    CHECK(nsbox_ports_get(ports, 1, &port) == 0 && nsbox_ports_get(ports, 2, &port) == -1);
    CHECK(port.kind == NSBOX_PORT_UDP && port.port == 53 && port.host_port == chosen);
    CHECK(strcmp(port.address, "127.0.0.1") == 0 && port.size == sizeof port);
    CHECK(nsbox_sandbox_remove_port(sandbox, &port, NULL) == 0);
    CHECK(nsbox_sandbox_remove_port(sandbox, &port, NULL) == -1);
    nsbox_ports_free(ports);
    ports = nsbox_sandbox_ports(sandbox);
    CHECK(nsbox_ports_count(ports) == 1);
    nsbox_ports_free(ports);
    port.kind = 9;
    CHECK(nsbox_sandbox_add_port(sandbox, &port, NULL, &error) == -1);
    CHECK(nsbox_error_code(error) == EINVAL);
    nsbox_error_free(error);
    CHECK(nsbox_sandbox_add_port(NULL, &port, NULL, NULL) == -1);
    CHECK(nsbox_sandbox_ports(NULL) == NULL && nsbox_ports_count(NULL) == 0);
    nsbox_ports_free(NULL);
    nsbox_sandbox_free(sandbox);
}

static void pools(void)
{
    nsbox_error* error = NULL;
    nsbox_command* const command = shell("echo $COLOR; touch left; ls");
    nsbox_pool* const pool = nsbox_pool_new(document, strlen(document), 2, 0, NULL);
    struct pollfd missing;
    int i;
    CHECK(nsbox_pool_ready(pool) == 1);
    CHECK(nsbox_pool_refill(pool, NULL) == 0 && nsbox_pool_ready(pool) == 2);
    missing.fd = nsbox_pool_descriptor(pool);
    missing.events = POLLIN;
    CHECK(poll(&missing, 1, 0) == 0);
    for (i = 0; i < 3; ++i) {
        nsbox_sandbox* const sandbox = nsbox_pool_take(pool, NULL);
        nsbox_outcome* const outcome = nsbox_run_in(sandbox, command, NULL, NULL);
        CHECK(strcmp(nsbox_outcome_output(outcome, NULL), "blue\nleft\n") == 0);
        nsbox_outcome_free(outcome);
        nsbox_sandbox_free(sandbox);
    }
    CHECK(poll(&missing, 1, 0) == 1);
    CHECK(nsbox_pool_new("{", 1, 2, 0, NULL) == NULL);
    CHECK(nsbox_pool_new(document, strlen(document), 0, 0, &error) == NULL);
    nsbox_error_free(error);
    CHECK(nsbox_pool_take(NULL, NULL) == NULL && nsbox_pool_refill(NULL, NULL) == -1);
    CHECK(nsbox_pool_ready(NULL) == 0 && nsbox_pool_descriptor(NULL) == -1);
    nsbox_pool_free(NULL);
    nsbox_pool_free(pool);
    nsbox_command_free(command);
}

static void scripts(void)
{
    static const char text[] = "echo \"$# $1 $COLOR\"\n";
    const char* const arguments[] = {"one", "two words", NULL};
    const char* const words[] = {"sh", NULL};
    nsbox_command* const command = nsbox_command_new(words, 2);
    nsbox_outcome* const outcome = nsbox_run_script(document, strlen(document), text, strlen(text),
                                                    command, arguments, 3, NULL, NULL);
    CHECK(strcmp(nsbox_outcome_output(outcome, NULL), "2 one blue\n") == 0);
    CHECK(nsbox_run_script(document, strlen(document), text, 1, NULL, NULL, 0, NULL, NULL) == NULL);
    nsbox_outcome_free(outcome);
    nsbox_command_free(command);
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
    resets(sandbox);
    starts();
    published();
    pools();
    scripts();
    nsbox_sandbox_close(sandbox);
    CHECK(nsbox_spawn(sandbox, command, &error) == NULL && nsbox_error_code(error) == ESRCH);
    nsbox_error_free(error);
    nsbox_command_free(command);
    nsbox_sandbox_free(sandbox);
    printf("nsbox %s: %s\n", nsbox_version(), wrong ? "wrong" : "right");
    return wrong;
}
