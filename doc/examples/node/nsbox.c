/* A module of Node.js on the C interface: runSync(document, words, milliseconds) runs a command in a sandbox.
 *
 *     cc -shared -fPIC -I/usr/include/node nsbox.c -o nsbox.node $(pkg-config --cflags --libs nsbox)
 */

#include <nsbox/nsbox.h>

#include <node_api.h>

#include <stdlib.h>
#include <string.h>

/* A string of JavaScript's as one that is to be freed; NULL for anything else. */
static char* text_of(napi_env env, napi_value value)
{
    size_t size = 0;
    char* text;
    if (napi_get_value_string_utf8(env, value, NULL, 0, &size) != napi_ok)
        return NULL;
    text = malloc(size + 1);
    if (text != NULL)
        napi_get_value_string_utf8(env, value, text, size + 1, &size);
    return text;
}

static void set_text(napi_env env, napi_value object, const char* name, const char* text,
                     size_t size)
{
    napi_value value;
    napi_create_string_utf8(env, text, size, &value);
    napi_set_named_property(env, object, name, value);
}

static napi_value result_of(napi_env env, const nsbox_outcome* outcome)
{
    nsbox_status status;
    napi_value result, number;
    const char* text;
    size_t size;
    memset(&status, 0, sizeof status);
    status.size = sizeof status;
    nsbox_outcome_status(outcome, &status);
    napi_create_object(env, &result);
    napi_create_int32(env, status.shell_code, &number);
    napi_set_named_property(env, result, "status", number);
    text = nsbox_outcome_output(outcome, &size);
    set_text(env, result, "output", text, size);
    text = nsbox_outcome_error(outcome, &size);
    set_text(env, result, "error", text, size);
    return result;
}

static napi_value run_sync(napi_env env, napi_callback_info info)
{
    napi_value arguments[3], item, result = NULL;
    size_t count = 3;
    uint32_t length = 0, i;
    char** words;
    char* document;
    nsbox_command* command;
    nsbox_run_options options;
    nsbox_outcome* outcome;
    nsbox_error* error = NULL;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    napi_get_cb_info(env, info, &count, arguments, NULL, NULL);
    if (count != 3 || napi_get_array_length(env, arguments[1], &length) != napi_ok || length == 0 ||
        napi_get_value_int64(env, arguments[2], &options.milliseconds) != napi_ok ||
        (document = text_of(env, arguments[0])) == NULL) {
        napi_throw_type_error(env, NULL, "runSync(document, words, milliseconds)");
        return NULL;
    }
    words = calloc(length, sizeof *words);
    for (i = 0; words != NULL && i < length; ++i) {
        napi_get_element(env, arguments[1], i, &item);
        words[i] = text_of(env, item);
        if (words[i] == NULL)
            break;
    }
    if (words == NULL || i < length) {
        napi_throw_type_error(env, NULL, "the words of a command are strings");
    } else {
        command = nsbox_command_new((const char* const*)words, length);
        outcome = nsbox_run(document, strlen(document), command, &options, &error);
        if (outcome == NULL)
            napi_throw_error(env, NULL, nsbox_error_message(error));
        else
            result = result_of(env, outcome);
        nsbox_error_free(error);
        nsbox_outcome_free(outcome);
        nsbox_command_free(command);
    }
    for (i = 0; words != NULL && i < length; ++i)
        free(words[i]);
    free(words);
    free(document);
    return result;
}

NAPI_MODULE_INIT()
{
    napi_value function;
    napi_create_function(env, "runSync", NAPI_AUTO_LENGTH, run_sync, NULL, &function);
    napi_set_named_property(env, exports, "runSync", function);
    return exports;
}
