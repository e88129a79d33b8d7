/* SPDX-License-Identifier: Apache-2.0 */
/* Describes an encrypted checkpoint without its key. */
#include "source/crypt/cipher.h"
#include "source/io/files.h"
#include "tool/info/info.h"

static const struct rfs_column columns[] = {
    {"mode", RFS_CELL_TEXT},
    {"blocks", RFS_CELL_NUMBER},
    {"bytes", RFS_CELL_NUMBER},
};

static int read_spans(void *ctx, struct iovec *spans, int n, uint64_t offset)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < n; offset += spans[i].iov_len, i++)
        rc = rfs_reading_pread(ctx, spans[i].iov_base, spans[i].iov_len, offset);
    return rc;
}

int rfs_info_encrypted(struct rfs_reading *reading, const char *path, struct rfs_report *report,
                       struct rfs_error *err)
{
    const struct rfs_cipher_input input = {read_spans, reading, reading->size, path};
    struct rfs_error why = {0};
    struct rfs_cipher cipher;
    const int rc = rfs_cipher_scan(&input, RFS_NOT_ENCRYPTED, RFS_CIPHER_BLOCK, &cipher, &why);
    if (rc != 0 && why.code == 0)
        return rfs_fail(err, rc, RFS_IN(path), NULL, "cannot read: %s", strerror(-rc));
    if (rc != 0) {
        *err = why;
        return rc;
    }
    const char *mode = rfs_cipher_name(cipher.mode);
    report->kind = "encrypted";
    RFS_TABLE_DESCRIBE(&report->table, columns);
    rfs_table_text(&report->table, mode);
    rfs_table_u64(&report->table, cipher.blocks);
    rfs_table_u64(&report->table, reading->size);
    fprintf(report->say,
            "encrypted (%s, %" PRIu32 " block%s): to see its content, give its key: "
            "-o key_file=FILE\n",
            mode, cipher.blocks, cipher.blocks == 1 ? "" : "s");
    rfs_json_put_text(&report->json, "mode", mode);
    return 0;
}
