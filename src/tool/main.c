/* SPDX-License-Identifier: Apache-2.0 */
#include "reshard.h"
#include "tool/tool.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: reshard info [--json] PATH\n"
    "       reshard export SRC DST [-s FILE] [-d FILE] [-o OPTION,...] [option...]\n"
    "       reshard export --verify DST\n"
    "       reshard example DIR [option...]\n"
    "       reshard --help | --version | COMMAND --help\n"
    "\n";

static const char commands[] =
    "info     shows what a checkpoint, rank folder, source tree or strategy holds\n"
    "export   writes what a mount would show into a folder; goes on where it was\n"
    "         stopped; on several machines under srun or mpirun\n"
    "example  writes a sharded checkpoint and two strategies, of any size\n";

static const char export_help[] =
    "  -s FILE, -d FILE   strategies of SRC and of DST (none: one whole checkpoint)\n"
    "  -o OPTION,...      any option of the view, as of reshardfs: view=huggingface\n"
    "  --format FORMAT    ckpt, safetensors or pt (ckpt)\n"
    "  --ranks 0-63,70    the files of these ranks alone\n"
    "  -j N               threads (as many as there are processors)\n"
    "  --no-fsync         do not wait until all is on the disk\n"
    "  --force            replace what is there and differs; write into any folder\n"
    "  --trust            keep what the manifest has without reading it again\n"
    "  --verify           write nothing: compare all with the manifest\n"
    "  --task K/N         the files of task K of N (as srun or mpirun say)\n"
    "  --json             progress and result as JSON, a line each\n";

static const char example_help[] =
    "  --src M            ranks of the source (8)\n"
    "  --dst N            ranks of the destination (4)\n"
    "  --layers L         a transformer of L layers, not the tutorial's network\n"
    "  --hidden H         its width, rounded up until every cut divides (256)\n"
    "  --size BYTES       about this many bytes of tensors, with K, M, G or T\n"
    "  --cut KIND         tp, mixed, opt: how the transformer is cut;\n"
    "                     rows, cols: matrices, cut along the first or the last axis\n"
    "  --run-bytes BYTES  cols: bytes of a row that one source rank holds (1024)\n"
    "  --dtype TYPE       float32, float16, bfloat16, float64, int8, int32 (float32)\n"
    "  --seed S           another content (1)\n"
    "  --force            replace an example that is in DIR already\n";

static bool is_help(const char *text)
{
    return strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    const char *first = argc > 2 ? argv[2] : "";
    if (is_help(command) || is_help(first)) {
        fputs(usage, stdout);
        fputs(strcmp(command, "export") == 0    ? export_help
              : strcmp(command, "example") == 0 ? example_help
                                                : commands,
              stdout);
        return rfs_tool_done();
    }
    if (strcmp(command, "example") == 0)
        return rfs_tool_example(argc - 1, argv + 1);
    if (strcmp(command, "export") == 0)
        return rfs_tool_export(argc - 1, argv + 1);
    if (strcmp(command, "info") == 0)
        return rfs_tool_info(argc - 1, argv + 1);
    if (strcmp(command, "--version") == 0 || strcmp(command, "-V") == 0) {
        printf("reshard %s\n", reshard_version());
        return rfs_tool_done();
    }
    struct rfs_error err = {0};
    if (command[0] == '\0')
        rfs_fail_usage(&err, "reshard --help", "no command given");
    else
        rfs_fail_usage(&err, "reshard --help", "unknown command '%s'", command);
    return rfs_tool_failed(&err);
}
