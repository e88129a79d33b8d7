/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A web server for measurements: files of a folder, whole or by ranges, each answer after a delay.
 * To a client of S3, the folders in it are buckets; signatures are not looked at.
 *
 *     range_server ROOT PORT_FILE DELAY_MS [RATE_MIB]
 *
 * It listens on a free port of 127.0.0.1, which it writes to PORT_FILE. A connection has a thread
 * of its own, and its bytes go from the page cache to the socket (sendfile), at most RATE_MIB MiB a
 * second. So a client is limited by itself, by the delay or by the rate, not by the server.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEAD_BYTES 8192
#define LIST_BYTES 65536 /* of the names of a folder */
#define CHUNK ((size_t)1 << 20)
#define ETAG "%jx-%" PRIx64 /* the time of the last change, and the size */

static const char *root;
static long delay_ms, rate_mib;

static void sleep_ns(uint64_t ns)
{
    struct timespec wait = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

    while (nanosleep(&wait, &wait) != 0 && errno == EINTR)
        continue;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static bool send_all(int to, const char *data, size_t n)
{
    while (n > 0) {
        const ssize_t sent = send(to, data, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        data += sent;
        n -= (size_t)sent;
    }
    return true;
}

static bool send_file(int to, int from, off_t at, uint64_t n)
{
    const uint64_t begin = now_ns();
    uint64_t done = 0;

    while (done < n) {
        const size_t most = n - done < CHUNK ? (size_t)(n - done) : CHUNK;
        const ssize_t sent = sendfile(to, from, &at, most);
        if (sent <= 0)
            return false;
        done += (uint64_t)sent;
        if (rate_mib > 0) {
            const uint64_t due = begin + done * 1000 / (uint64_t)rate_mib * 1000000 / 1048576;
            const uint64_t now = now_ns();
            if (due > now)
                sleep_ns(due - now);
        }
    }
    return true;
}

/* The value of a header, or NULL. */
static const char *header(const char *head, const char *name)
{
    const size_t n = strlen(name);

    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, name, n) == 0)
            return line + 2 + n;
    return NULL;
}

static bool refuse(int to, const char *status)
{
    char text[128];
    const int n = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n", status);

    return send_all(to, text, (size_t)n);
}

static bool answer_file(int to, int fd, bool whole, const char *range, bool body)
{
    struct stat st;
    uint64_t a = 0, b, size;
    char text[512];

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return refuse(to, "404 Not Found");
    size = (uint64_t)st.st_size;
    b = size - 1;
    if (!whole && (sscanf(range, " bytes=%" SCNu64 "-%" SCNu64, &a, &b) < 1 || a >= size))
        return refuse(to, "416 Range Not Satisfiable");
    b = b < size ? b : size - 1;
    const uint64_t n = size > 0 ? b + 1 - a : 0;
    int length = snprintf(text, sizeof text,
                          "HTTP/1.1 %s\r\nContent-Length: %" PRIu64 "\r\nETag: \"" ETAG
                          "\"\r\nAccept-Ranges: bytes\r\n",
                          whole ? "200 OK" : "206 Partial Content", n, (intmax_t)st.st_mtime, size);
    if (!whole)
        length +=
            snprintf(text + length, sizeof text - (size_t)length,
                     "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n", a, b, size);
    length += snprintf(text + length, sizeof text - (size_t)length, "\r\n");
    return send_all(to, text, (size_t)length) && (!body || send_file(to, fd, (off_t)a, n));
}

/* A list of names in JSON, or where it is. */
static bool answer_folder(int to, const char *path, const char *file)
{
    char head[4500];
    size_t n = 1;
    struct dirent *entry;
    const size_t length = strlen(path);

    if (length > 0 && path[length - 1] != '/') {
        snprintf(head, sizeof head,
                 "HTTP/1.1 301 Moved\r\nLocation: /%s/\r\nContent-Length: 0\r\n\r\n", path);
        return send_all(to, head, strlen(head));
    }
    char *text = malloc(LIST_BYTES);
    DIR *folder = text ? opendir(file) : NULL;
    if (!folder) {
        free(text);
        return refuse(to, "404 Not Found");
    }
    text[0] = '[';
    while ((entry = readdir(folder)) && n < LIST_BYTES - 512)
        if (entry->d_name[0] != '.')
            n += (size_t)sprintf(text + n, "%s\"%s%s\"", n > 1 ? "," : "", entry->d_name,
                                 entry->d_type == DT_DIR ? "/" : "");
    closedir(folder);
    text[n++] = ']';
    snprintf(head, sizeof head,
             "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", n);
    const bool good = send_all(to, head, strlen(head)) && send_all(to, text, n);
    free(text);
    return good;
}

/* Writes the value of a parameter of a query, decoded; "" if there is none. */
static void parameter(const char *query, const char *name, char *out, size_t cap)
{
    const char *at = strstr(query, name);
    size_t n = 0;

    for (at = at ? at + strlen(name) : ""; *at && *at != '&' && n + 1 < cap; at++) {
        unsigned code = (unsigned char)*at;
        if (code == '%' && sscanf(at + 1, "%2x", &code) == 1)
            at += 2;
        out[n++] = (char)code;
    }
    out[n] = '\0';
}

static void list_file(FILE *out, const char *key, const struct stat *st)
{
    char when[32];
    struct tm utc;

    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S.000Z", gmtime_r(&st->st_mtime, &utc));
    fputs("<Contents><Key>", out);
    for (; *key; key++)
        fprintf(out, isalnum((unsigned char)*key) || strchr("-_.", *key) ? "%c" : "%%%02X",
                (unsigned char)*key);
    fprintf(out,
            "</Key><LastModified>%s</LastModified><ETag>&quot;" ETAG
            "&quot;</ETag><Size>%jd</Size></Contents>",
            when, (intmax_t)st->st_mtime, (uint64_t)st->st_size, (intmax_t)st->st_size);
}

/* Lists the files below a folder of a bucket whose keys begin with the prefix. */
static void list_below(FILE *out, const char *bucket, const char *below, const char *prefix)
{
    char path[8192], key[4096];
    struct dirent *entry;
    struct stat st;

    snprintf(path, sizeof path, "%s/%s/%s", root, bucket, below);
    DIR *folder = opendir(path);
    while (folder && (entry = readdir(folder))) {
        const int n = snprintf(key, sizeof key, "%s%s", below, entry->d_name);
        const size_t same = (size_t)n < strlen(prefix) ? (size_t)n : strlen(prefix);
        if (entry->d_name[0] == '.' || n + 2 > (int)sizeof key || strncmp(key, prefix, same) != 0 ||
            fstatat(dirfd(folder), entry->d_name, &st, 0) != 0)
            continue;
        if (S_ISDIR(st.st_mode))
            list_below(out, bucket, strcat(key, "/"), prefix);
        else if (strlen(key) >= strlen(prefix))
            list_file(out, key, &st);
    }
    if (folder)
        closedir(folder);
}

/* What ListObjectsV2 answers, in one page of any size. */
static bool answer_list(int to, const char *bucket, const char *query)
{
    char prefix[4096], head[128], *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);

    if (!out)
        return false;
    parameter(query, "prefix=", prefix, sizeof prefix);
    fputs("<ListBucketResult><IsTruncated>false</IsTruncated>", out);
    list_below(out, bucket, "", prefix);
    fputs("</ListBucketResult>", out);
    fclose(out);
    snprintf(head, sizeof head,
             "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %zu\r\n\r\n", n);
    const bool good = send_all(to, head, strlen(head)) && send_all(to, text, n);
    free(text);
    return good;
}

/* One request, whose head ends with a NUL. */
static bool answer(int to, char *head)
{
    char method[8], path[4096], file[8192];
    char *query;
    struct stat st;

    if (delay_ms > 0)
        sleep_ns((uint64_t)delay_ms * 1000000);
    /* A client may give the whole URL, as AWS's does. */
    if ((sscanf(head, "%7s http://%*[^/]/%4095[^ ]", method, path) != 2 &&
         sscanf(head, "%7s /%4095[^ ]", method, path) != 2) ||
        strstr(path, ".."))
        return refuse(to, "400 Bad Request");
    query = strchr(path, '?');
    if (query)
        *query++ = '\0';
    if (query && strstr(query, "list-type=2")) {
        path[strcspn(path, "/")] = '\0';
        return answer_list(to, path, query);
    }
    snprintf(file, sizeof file, "%s/%s", root, path);
    if (stat(file, &st) == 0 && S_ISDIR(st.st_mode)) /* which is no object of a bucket */
        return header(head, "authorization:") ? refuse(to, "404 Not Found")
                                              : answer_folder(to, path, file);
    const int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return refuse(to, "404 Not Found");
    const char *range = header(head, "range:");
    const bool good = answer_file(to, fd, !range, range, strcmp(method, "HEAD") != 0);
    close(fd);
    return good;
}

static void *serve(void *arg)
{
    const int fd = (int)(intptr_t)arg;
    char head[HEAD_BYTES];
    size_t n = 0;

    for (;;) {
        head[n] = '\0';
        char *end = strstr(head, "\r\n\r\n");
        if (end) {
            const size_t used = (size_t)(end - head) + 4;
            end[2] = '\0';
            if (!answer(fd, head))
                break;
            memmove(head, head + used, n - used);
            n -= used;
            continue;
        }
        const ssize_t got = n + 1 < sizeof head ? read(fd, head + n, sizeof head - 1 - n) : 0;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    close(fd);
    return NULL;
}

static void write_port(const char *path, int listening)
{
    struct sockaddr_in address;
    socklen_t n = sizeof address;
    char part[4096];

    getsockname(listening, (struct sockaddr *)&address, &n);
    snprintf(part, sizeof part, "%s.part", path);
    FILE *file = fopen(part, "w");
    if (!file || fprintf(file, "%u\n", ntohs(address.sin_port)) < 0 || fclose(file) != 0 ||
        rename(part, path) != 0) {
        perror(path);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;

    if (argc < 4) {
        fprintf(stderr, "range_server ROOT PORT_FILE DELAY_MS [RATE_MIB]\n");
        return 1;
    }
    root = argv[1];
    delay_ms = atol(argv[3]);
    rate_mib = argc > 4 ? atol(argv[4]) : 0;
    signal(SIGPIPE, SIG_IGN);
    if (bind(listening, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listening, 512) != 0) {
        perror("listen");
        return 1;
    }
    write_port(argv[2], listening);
    for (;;) {
        const int fd = accept(listening, NULL, NULL);
        pthread_t thread;
        if (fd < 0)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) != 0)
            close(fd);
        else
            pthread_detach(thread);
    }
}
