/* SPDX-License-Identifier: Apache-2.0 */
/* Object storage without a server: signatures, credentials, lists of objects. */
#include "base/options.h"
#include "base/store.h"
#include "store/remote/account.h"
#include "store/remote/bucket.h"
#include "store/remote/credentials.h"
#include "store/remote/http.h"
#include "store/remote/listing.h"
#include "store/remote/markup.h"
#include "store/remote/object.h"
#include "store/remote/remote.h"
#include "store/remote/sign.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/forking.h"
#include "tests/support/valgrind.h"

/* The examples in AWS's documentation of S3's signatures. */
#define KEY_ID "AKIAIOSFODNN7EXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define BUCKET_HOST "examplebucket.s3.amazonaws.com"

static void expect_signature(const char *path, const char *query,
                             const struct rfs_sign_header *headers, size_t n, const char *want)
{
    const struct rfs_sign sign = {
        .key_id = KEY_ID,
        .secret = SECRET,
        .region = "us-east-1",
        .service = "s3",
        .time = "20130524T000000Z",
        .method = "GET",
        .path = path,
        .query = query,
        .headers = headers,
        .n_headers = n,
    };
    char *got = rfs_sign_authorization(&sign);

    assert_non_null(got);
    assert_non_null(strstr(got, "Credential=" KEY_ID "/20130524/us-east-1/s3/aws4_request,"));
    assert_string_equal(strstr(got, "Signature=") + strlen("Signature="), want);
    free(got);
}

static void signatures_of_the_documentation(void **state)
{
    const struct rfs_sign_header plain[] = {{"host", BUCKET_HOST},
                                            {"x-amz-content-sha256", RFS_SIGN_NO_BODY},
                                            {"x-amz-date", "20130524T000000Z"}};
    const struct rfs_sign_header ranged[] = {{"host", BUCKET_HOST},
                                             {"range", "bytes=0-9"},
                                             {"x-amz-content-sha256", RFS_SIGN_NO_BODY},
                                             {"x-amz-date", "20130524T000000Z"}};

    (void)state;
    expect_signature("/test.txt", "", ranged, 4,
                     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    expect_signature("/", "lifecycle=", plain, 3,
                     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    expect_signature("/", "max-keys=2&prefix=J", plain, 3,
                     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

static void a_signature_of_what_is_sent(void **state)
{
    struct iovec spans[] = {{(char[]){"Welcome to "}, 11}, {NULL, 0}, {(char[]){"Amazon S3."}, 10}};
    struct rfs_sign_sums sums;

    (void)state;
    assert_int_equal(rfs_sign_sum(spans, 3, &sums), 0);
    assert_string_equal(sums.sha256,
                        "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
    const struct rfs_sign_header headers[] = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                              {"host", BUCKET_HOST},
                                              {"x-amz-content-sha256", sums.sha256},
                                              {"x-amz-date", "20130524T000000Z"},
                                              {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
    const struct rfs_sign sign = {
        .key_id = KEY_ID,
        .secret = SECRET,
        .region = "us-east-1",
        .service = "s3",
        .time = "20130524T000000Z",
        .method = "PUT",
        .path = "/test%24file.text",
        .query = "",
        .headers = headers,
        .n_headers = 5,
        .body = sums.sha256,
    };
    char *got = rfs_sign_authorization(&sign);
    assert_string_equal(strstr(got, "Signature=") + strlen("Signature="),
                        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    free(got);
}

/* As md5sum, base64 and `(xxd -r -p <<< DIGESTS) | md5sum` have them. */
static void checksums_of_parts(void **state)
{
    struct iovec empty = {NULL, 0}, abc = {(char[]){"abc"}, 3};
    struct rfs_sign_sums sums;
    char md5s[2][33], all[33];

    (void)state;
    assert_int_equal(rfs_sign_sum(&empty, 1, &sums), 0);
    assert_string_equal(sums.sha256, RFS_SIGN_NO_BODY);
    assert_string_equal(sums.md5, "d41d8cd98f00b204e9800998ecf8427e");
    assert_string_equal(sums.md5_base64, "1B2M2Y8AsgTpgAmY7PhCfg==");
    memcpy(md5s[0], sums.md5, sizeof md5s[0]);
    assert_int_equal(rfs_sign_sum(&abc, 1, &sums), 0);
    assert_string_equal(sums.md5, "900150983cd24fb0d6963f7d28e17f72");
    memcpy(md5s[1], sums.md5, sizeof md5s[1]);
    assert_int_equal(rfs_sign_sum_parts((const char(*)[33])md5s, 2, all), 0);
    assert_string_equal(all, "66027c6d92d43d01c4f2aa8759629be3");
}

static void the_test_suite_of_version_4(void **state)
{
    const struct rfs_sign_header headers[] = {{"host", "example.amazonaws.com"},
                                              {"x-amz-date", "20150830T123600Z"}};
    const struct rfs_sign sign = {
        .key_id = "AKIDEXAMPLE",
        .secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        .region = "us-east-1",
        .service = "service",
        .time = "20150830T123600Z",
        .method = "GET",
        .path = "/",
        .query = "",
        .headers = headers,
        .n_headers = 2,
    };
    char *got = rfs_sign_authorization(&sign);

    (void)state;
    assert_string_equal(
        got, "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request,"
             "SignedHeaders=host;x-amz-date,"
             "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
    free(got);
}

static void names_are_encoded(void **state)
{
    char *path = rfs_sign_encode("a b/ä+~=&*'", true);
    char *query = rfs_sign_encode("a/b", false);

    (void)state;
    assert_string_equal(path, "a%20b/%C3%A4%2B~%3D%26%2A%27");
    assert_string_equal(query, "a%2Fb");
    free(path);
    free(query);
}

static void shared_files_have_profiles(void **state)
{
    static const char text[] = "# mine\n"
                               "[default]\n"
                               "aws_access_key_id = A\r\n"
                               "aws_secret_access_key=B/=+ \n"
                               "\n"
                               "[profile train]\n"
                               "  region =  eu-west-1\n"
                               "; region = none\n"
                               "[train2]\n"
                               "region = x";
    char out[16];

    (void)state;
    assert_true(rfs_profile_find(text, "default", "aws_access_key_id", out, sizeof out));
    assert_string_equal(out, "A");
    assert_true(rfs_profile_find(text, "default", "aws_secret_access_key", out, sizeof out));
    assert_string_equal(out, "B/=+");
    assert_true(rfs_profile_find(text, "train", "region", out, sizeof out));
    assert_string_equal(out, "eu-west-1");
    assert_true(rfs_profile_find(text, "train2", "region", out, sizeof out));
    assert_string_equal(out, "x");
    assert_false(rfs_profile_find(text, "default", "region", out, sizeof out));
    assert_false(rfs_profile_find(text, "train", "region", out, 9));
    assert_false(rfs_profile_find("", "default", "region", out, sizeof out));
    assert_false(rfs_profile_find("[", "", "region", out, sizeof out));
}

/* Takes the account of a view with these options, by the environment and the profile. */
static struct rfs_account *take_account(const struct rfs_options *options)
{
    static const char *const paths[] = {"https://host/a"};
    struct rfs_store *store = NULL;

    assert_int_equal(rfs_remote_take(options, paths, 1, &store, NULL), 0);
    assert_non_null(store);
    return rfs_account_of(store);
}

static void give_account(struct rfs_account *account)
{
    struct rfs_store *store = &account->store;

    rfs_remote_give(&store);
}

/* Everything of the environment that says who a view is, or how it reaches its stores. */
static const char *const told[] = {
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "SSL_CERT_FILE",
    "HF_ENDPOINT",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HF_TOKEN_PATH",
    "HF_HOME",
    "XDG_CACHE_HOME",
    "HOME",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
};

/* Two accounts are one only while the environment is the same in all of it. */
static void accounts_of_other_environments_are_others(void **state)
{
    const struct rfs_options none = {0};

    (void)state;
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        unsetenv(told[i]);
        struct rfs_account *accounts[4];
        for (size_t k = 0; k < 4; k++) {
            const char *values[] = {NULL, "/one", "/two", "/two"};
            if (values[k])
                setenv(told[i], values[k], 1);
            accounts[k] = take_account(&none);
            assert_non_null(accounts[k]);
        }
        for (size_t k = 0; k < 4; k++)
            for (size_t m = 0; m < 4; m++)
                if ((accounts[k] == accounts[m]) != (k == m || k + m == 5))
                    fail_msg("%s: accounts %zu and %zu", told[i], k, m);
        for (size_t k = 0; k < 4; k++)
            give_account(accounts[k]);
        unsetenv(told[i]);
    }
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* What an account was made by stays, whatever becomes of the variables and the files. */
static void an_account_keeps_its_environment(void **state)
{
    const struct rfs_options none = {0}, train = {.profile = (char *)(uintptr_t) "train"};
    char folder[] = "/tmp/reshardfs-home-XXXXXX", file[64], hub[64], here[4096], want[4200];
    char bearer[RFS_CREDENTIALS_BEARER];
    struct rfs_credentials got;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/credentials", folder);
    snprintf(hub, sizeof hub, "%s/token", folder);
    write_text(file, "[default]\naws_access_key_id = A\naws_secret_access_key = B\n"
                     "[train]\naws_access_key_id = C\naws_secret_access_key = D\n");
    write_text(hub, " hf_one\n");
    setenv("AWS_SHARED_CREDENTIALS_FILE", file, 1);
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("HF_TOKEN_PATH", hub, 1);
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "tokens/web", 1);
    setenv("https_proxy", "http://proxy:1", 1);
    struct rfs_account *account = take_account(&train);
    assert_non_null(account);
    struct rfs_account *same = take_account(&train), *other = take_account(&none);
    assert_ptr_equal(account, same);
    assert_ptr_not_equal(account, other);
    give_account(same);
    give_account(other);
    write_text(file, "[default]\naws_access_key_id = X\naws_secret_access_key = Y\n"
                     "[train]\naws_access_key_id = C\naws_secret_access_key = D\n");
    same = take_account(&train);
    assert_ptr_equal(account, same); /* another profile has changed */
    give_account(same);
    write_text(file, "[train]\naws_access_key_id = X\naws_secret_access_key = Y\n");
    other = take_account(&train);
    assert_ptr_not_equal(account, other);
    give_account(other);
    write_text(hub, "hf_two");
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    unsetenv("HF_TOKEN_PATH");
    unsetenv("AWS_WEB_IDENTITY_TOKEN_FILE");
    setenv("https_proxy", "http://other:1", 1);
    assert_int_equal(rfs_credentials_get(account->credentials, &got), 0);
    assert_string_equal(got.key_id, "C");
    assert_string_equal(got.secret, "D");
    assert_int_equal(rfs_credentials_bearer(account->credentials, bearer), 0);
    assert_string_equal(bearer, "Bearer hf_one");
    assert_non_null(getcwd(here, sizeof here));
    snprintf(want, sizeof want, "%s/tokens/web", here);
    assert_string_equal(rfs_environment_get(account->environment, "AWS_WEB_IDENTITY_TOKEN_FILE"),
                        want);
    assert_string_equal(rfs_environment_way_to(account->environment, "https://x/").proxy,
                        "http://proxy:1");
    assert_string_equal(rfs_environment_way_to(account->environment, "http://x/").proxy, "");
    give_account(account);
    unsetenv("https_proxy");
    unsetenv("AWS_CONFIG_FILE");
    unlink(file);
    unlink(hub);
    rmdir(folder);
}

static void metadata_services_give_credentials_for_a_while(void **state)
{
    static const char text[] =
        "{\"Code\":\"Success\",\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"B\","
        "\"Token\":\"C\",\"Expiration\":\"2030-01-02T03:04:05Z\",\"x\":[1]}";
    struct rfs_credentials got;

    (void)state;
    assert_true(rfs_credentials_parse(text, strlen(text), &got));
    assert_string_equal(got.key_id, "A");
    assert_string_equal(got.secret, "B");
    assert_string_equal(got.token, "C");
    assert_int_equal(got.ends, 1893553445);
    assert_false(rfs_credentials_parse("{\"AccessKeyId\":\"A\"}", 19, &got));
    assert_false(rfs_credentials_parse("<html>", 6, &got));
}

static void etags_that_are_lines(void **state)
{
    (void)state;
    assert_true(rfs_http_etag_is_strong("\"abc\""));
    assert_false(rfs_http_etag_is_strong(""));
    assert_false(rfs_http_etag_is_strong("W/\"abc\""));
    assert_false(rfs_http_etag_is_strong("\"abc\"\r\nx-more: 1"));
    assert_false(rfs_http_etag_is_strong("\"a\x7f\""));
}

#define OBJECT(key, size)                                                                          \
    "<Contents><Key>" key "</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified>"            \
    "<ETag>&quot;abc&quot;</ETag><Size>" size "</Size></Contents>"

static int page(const char *text, struct rfs_remote_listing *out, char next[64])
{
    return rfs_listing_page(text, strlen(text), "run/", out, next, 64);
}

static void pages_of_keys(void **state)
{
    struct rfs_remote_listing got = {0};
    char next[64];

    (void)state;
    assert_int_equal(
        page("<ListBucketResult><IsTruncated>true</IsTruncated>" OBJECT("run/", "0") OBJECT(
                 "run/a%20b%2Bc+d", "8") OBJECT("run/../x", "1") OBJECT("run/r//x", "1")
                 OBJECT("run/f%2F", "0") "<NextContinuationToken>t&amp;1</NextContinuationToken>"
                                         "</ListBucketResult>",
             &got, next),
        0);
    assert_string_equal(next, "t&1");
    assert_int_equal(got.n, 2);
    assert_string_equal(got.data[0].name, "a b+c d");
    assert_string_equal(got.data[0].etag, "\"abc\"");
    assert_int_equal(got.data[0].size, 8);
    assert_int_equal(got.data[0].modified, 1767323045);
    assert_true(got.data[1].folder);
    rfs_remote_listing_free(&got);
}

static void pages_that_are_none(void **state)
{
    static const char *const texts[] = {
        "",
        "<html>",
        "<IsTruncated>true</IsTruncated>",
        "<IsTruncated>false</IsTruncated>" OBJECT("other/a", "1"),
        "<IsTruncated>false</IsTruncated>" OBJECT("run/a", "-1"),
        "<IsTruncated>false</IsTruncated>" OBJECT("run/a", "99999999999999999999"),
        "<IsTruncated>false</IsTruncated>" OBJECT("run/a%0", "1"),
        "<IsTruncated>false</IsTruncated>" OBJECT("run/a%00", "1"),
        "<IsTruncated>false</IsTruncated><Contents><Key>run/a</Key></Contents>",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct rfs_remote_listing got = {0};
        char next[64];
        assert_int_equal(page(texts[i], &got, next), -EINVAL);
        rfs_remote_listing_free(&got);
    }
}

static void expect_index(const char *text, bool json, const char *want)
{
    struct rfs_remote_listing got = {0};
    char shown[256] = "";

    assert_int_equal(rfs_listing_index(text, strlen(text), json, &got), 0);
    for (size_t i = 0; i < got.n; i++) {
        strcat(shown, got.data[i].name);
        strcat(shown, got.data[i].folder ? "/ " : " ");
    }
    assert_string_equal(shown, want);
    rfs_remote_listing_free(&got);
}

static void indexes_of_folders(void **state)
{
    struct rfs_remote_listing none = {0};

    (void)state;
    expect_index(
        "<a href=\"../\">../</a><a href=\"rank_0/\">rank_0/</a>\n"
        "<A class='x' HREF='a%20b.ckpt'>a</A><a href=\"?C=N;O=D\">Name</a>"
        "<a href=\"/up/\">Parent</a><a href=\"https://x/\">x</a><a href=y><abbr href=\"z\">",
        false, "rank_0/ a b.ckpt ");
    expect_index("[{\"name\":\"rank_0\",\"type\":\"directory\",\"mtime\":\"x\"},"
                 "{\"type\":\"file\",\"name\":\"a.ckpt\",\"size\":3}]",
                 true, "rank_0/ a.ckpt ");
    expect_index("[\"rank_0/\", \"a.ckpt\", \"../x\", \"..\", \"\"]", true, "rank_0/ a.ckpt ");
    assert_int_equal(rfs_listing_index("{}", 2, true, &none), -EINVAL);
    rfs_remote_listing_free(&none);
}

/* Makes an account by the environment alone. */
static struct rfs_account *plain_account(void)
{
    const struct rfs_options none = {0};
    struct rfs_account *account = take_account(&none);

    assert_non_null(account);
    return account;
}

static void expect_place_of(struct rfs_account *account, const char *url, const char *base,
                            const char *path)
{
    struct rfs_bucket place;

    assert_int_equal(rfs_bucket_of(account, url, &place), 0);
    char *got = rfs_bucket_path(&place, place.key);
    assert_string_equal(place.base, base);
    assert_string_equal(got, path);
    free(got);
    rfs_bucket_free(&place);
}

static void expect_place(const char *url, const char *base, const char *path)
{
    struct rfs_account *account = plain_account();

    expect_place_of(account, url, base, path);
    give_account(account);
}

static void expect_no_place(const char *url)
{
    struct rfs_account *account = plain_account();
    struct rfs_bucket place;

    assert_int_equal(rfs_bucket_of(account, url, &place), -EINVAL);
    rfs_bucket_free(&place);
    give_account(account);
}

static void urls_lead_to_places(void **state)
{
    static const char *const wrong[] = {"s3://",        "s3:///a",     "s3://b c/a", "https://",
                                        "http://u@h/a", "https://h?a", "s3://b/a\nb"};

    (void)state;
    unsetenv("AWS_ENDPOINT_URL_S3");
    unsetenv("AWS_ENDPOINT_URL");
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_REGION", "eu-west-1", 1);
    expect_place("s3://bucket/a b", "https://bucket.s3.eu-west-1.amazonaws.com", "/a%20b");
    expect_place("s3://dot.bucket/a", "https://s3.eu-west-1.amazonaws.com", "/dot.bucket/a");
    expect_place("https://host:1/a/b+c", "https://host:1", "/a/b%2Bc");
    expect_place("http://host", "http://host", "/");
    setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000/", 1);
    expect_place("s3://bucket/a", "http://127.0.0.1:9000", "/bucket/a");
    setenv("AWS_ENDPOINT_URL", "http://minio:9000", 1);
    expect_place("s3://bucket/a", "http://minio:9000", "/bucket/a");
    setenv("AWS_ENDPOINT_URL_S3", "https://obs.cn-north-4.myhuaweicloud.com", 1);
    expect_place("s3://bucket/a", "https://bucket.obs.cn-north-4.myhuaweicloud.com", "/a");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_no_place(wrong[i]);
}

/* Whether a bucket may be asked for at another host, and where it then is. */
static void places_that_move(void **state)
{
    static const struct {
        const char *endpoint, *location, *base; /* NULL: it stays */
    } cases[] = {
        {"https://s3.eu-west-1.amazonaws.com", "https://bucket.s3-us-west-2.amazonaws.com/a?x=1",
         "https://bucket.s3-us-west-2.amazonaws.com"},
        {"https://s3.eu-west-1.amazonaws.com", "https://s3.us-west-2.amazonaws.com/bucket/a",
         "https://bucket.s3.us-west-2.amazonaws.com"},
        {"https://s3.eu-west-1.amazonaws.com", "https://S3.amazonaws.com./bucket/a",
         "https://bucket.s3.amazonaws.com"},
        {"https://s3.eu-west-1.amazonaws.com",
         "https://bucket.s3.dualstack.us-west-2.amazonaws.com:443",
         "https://bucket.s3.dualstack.us-west-2.amazonaws.com:443"},
        /* Customers of AWS have these. */
        {"https://s3.eu-west-1.amazonaws.com",
         "https://abc123.execute-api.us-east-1.amazonaws.com/", NULL},
        {"https://s3.eu-west-1.amazonaws.com",
         "https://s3.abc123.execute-api.us-east-1.amazonaws.com/", NULL},
        {"https://s3.eu-west-1.amazonaws.com", "https://s3-1234.us-east-1.elb.amazonaws.com/",
         NULL},
        {"https://s3.eu-west-1.amazonaws.com", "https://evil-s3.us-east-1.amazonaws.com/", NULL},
        {"https://s3.eu-west-1.amazonaws.com", "https://amazonaws.com/", NULL},
        {"https://s3.eu-west-1.amazonaws.com", "https://s3.cn-north-1.amazonaws.com.cn/", NULL},
        {"http://s3.provider.org", "https://eu.s3.provider.org:444/a",
         "https://bucket.eu.s3.provider.org:444"},
        {"http://s3.provider.org", "https://bucket.eu.s3.provider.org?a",
         "https://bucket.eu.s3.provider.org"},
        {"http://s3.provider.org", "https://eu.provider.org/a", NULL},
        {"http://s3.provider.org", "https://evils3.provider.org/a", NULL},
        {"https://me.duckdns.org", "https://other.duckdns.org/", NULL},
        {"https://minio.acme.com.", "https://evil.com./", NULL},
        {"https://minio.acme.com", "https://evil.com.:443/", NULL},
        {"https://minio.acme.com.", "https://MINIO.acme.com/", "https://bucket.minio.acme.com"},
        {"https://minio.acme.com", "https://.minio.acme.com/", NULL},
        {"https://minio.acme.com", "https://eu..minio.acme.com/", NULL},
        {"https://minio.acme.com", "https://evil.org%2e.minio.acme.com/", NULL},
        {"https://minio.acme.com", "https://evil.org%23.minio.acme.com/", NULL},
        {"https://minio.acme.com", "https://evil.org\t.minio.acme.com/", NULL},
        {"https://minio.acme.com", "https://evil.org;.minio.acme.com/", NULL},
        {"https://minio.acme.com", "https://eu.minio.acme.com:99999999/", NULL},
        {"https://minio.acme.com", "https://eu.minio.acme.com:443@evil.org/", NULL},
        {"https://minio.acme.com", "https:///eu.minio.acme.com/", NULL},
        {"https://s3.cn-north-1.amazonaws.com.cn", "https://s3.cn-north-2.amazonaws.com.cn/",
         "https://bucket.s3.cn-north-2.amazonaws.com.cn"},
        {"https://s3.cn-north-1.amazonaws.com.cn", "https://s3.evil.com.cn/", NULL},
        {"https://s3.eu-west-1.amazonaws.com", "https://s3.amazonaws.com.evil.org/", NULL},
        {"https://s3.eu-west-1.amazonaws.com", "https://evilamazonaws.com/", NULL},
        {"https://s3.eu-west-1.amazonaws.com", "http://s3.us-west-2.amazonaws.com/", NULL},
        {"https://s3.eu-west-1.amazonaws.com", "https://x@s3.us-west-2.amazonaws.com/", NULL},
        {"https://s3.eu-west-1.amazonaws.com", "https://evil.org\\@s3.us-west-2.amazonaws.com/",
         NULL},
        {"https://s3.eu-west-1.amazonaws.com", "/bucket/a", NULL},
        {"http://127.0.0.1:9000", "http://10.0.0.1/bucket/a", NULL},
        {"http://127.0.0.1:9000", "http://127.0.0.1:9001/bucket/a", NULL},
        {"http://minio:9000", "http://other:9000/bucket/a", NULL},
    };

    (void)state;
    unsetenv("AWS_ENDPOINT_URL_S3");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rfs_bucket place;
        setenv("AWS_ENDPOINT_URL", cases[i].endpoint, 1);
        struct rfs_account *account = plain_account();
        assert_int_equal(rfs_bucket_of(account, "s3://bucket/a", &place), 0);
        assert_int_equal(rfs_bucket_move(&place, cases[i].location), cases[i].base != NULL);
        if (cases[i].base)
            expect_place_of(account, "s3://bucket/a", cases[i].base, "/a");
        rfs_bucket_free(&place);
        give_account(account);
    }
    unsetenv("AWS_ENDPOINT_URL");
}

/* A bucket that is named as the endpoint begins is not in front of it when it is in the path. */
static void places_of_a_bucket_in_the_path(void **state)
{
    const struct rfs_options options = {.path_style = true};
    struct rfs_bucket place;

    (void)state;
    setenv("AWS_ENDPOINT_URL", "https://minio.acme.com", 1);
    struct rfs_account *account = take_account(&options);
    assert_non_null(account);
    assert_int_equal(rfs_bucket_of(account, "s3://minio/a", &place), 0);
    assert_string_equal(place.base, "https://minio.acme.com");
    assert_false(rfs_bucket_move(&place, "https://evil.acme.com/"));
    assert_false(rfs_bucket_move(&place, "https://acme.com/"));
    assert_true(rfs_bucket_move(&place, "https://eu.minio.acme.com/"));
    expect_place_of(account, "s3://minio/a", "https://eu.minio.acme.com", "/minio/a");
    rfs_bucket_free(&place);
    give_account(account);
    unsetenv("AWS_ENDPOINT_URL");
}

/* A region is a part of a host's name. */
static void regions_that_are_none(void **state)
{
    static const char *const regions[] = {"evil.org", "x/", "a b", "a:1", "a@b", "a#"};

    (void)state;
    setenv("AWS_REGION", "eu-west-1", 1);
    struct rfs_account *account = take_account(&(struct rfs_options){.anonymous = true});
    for (size_t i = 0; i < sizeof regions / sizeof *regions; i++) {
        rfs_bucket_learn(account, "bucket", regions[i]);
        expect_place_of(account, "s3://bucket/a", "https://bucket.s3.eu-west-1.amazonaws.com",
                        "/a");
    }
    rfs_bucket_learn(account, "bucket", "us-west-2");
    expect_place_of(account, "s3://bucket/a", "https://bucket.s3.us-west-2.amazonaws.com", "/a");
    /* No other account has learnt it. */
    expect_place("s3://bucket/a", "https://bucket.s3.eu-west-1.amazonaws.com", "/a");
    give_account(account);
}

static void lists_of_paths_with_urls(void **state)
{
    static const char *const with[] = {"hf://a/b", "/x:hf://a/b", "::hf://a", "s3://a:hf://b/c"};
    static const char *const without[] = {"",          ":",     "/x",       "s3://a/hf://b",
                                          "/x:s3://a", "hf:/a", "/x/hf://a"};

    (void)state;
    for (size_t i = 0; i < sizeof with / sizeof *with; i++)
        assert_true(rfs_store_has_url(with[i], "hf://") && rfs_store_has_url(with[i], NULL));
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        assert_false(rfs_store_has_url(without[i], "hf://"));
    assert_true(rfs_store_has_url("/x:http://a", NULL) && !rfs_store_has_url("/x:gs://a", NULL));
}

/* Where the files of a model are, and which hosts are the hub's own. */
static void urls_of_hubs(void **state)
{
    static const char *const wrong[] = {
        "hf://",           "hf://a",      "hf:///a",     "hf://a/",         "hf://a/../b",
        "hf://a/b@",       "hf://a/b@/c", "hf://a/b@%0", "hf://a/b@%00c",   "hf://a/b c",
        "hf://spaces/a/b", "hf://.a/b",   "hf://a/b?c",  "hf://datasets/a", "hf://a/b\n",
    };
    static const char *const others[] = {
        "https://hub.org.evil.com/",  "https://hub.org@evil.com/",
        "https://hub.org:444/",       "http://hub.org/",
        "https://evil.com/hub.org/",  "https://hub.org\\@evil.com/",
        "https://hub.org?@evil.com/", "https://HUB.org/",
        "https://hub.orgx/",
    };
    struct rfs_bucket place;

    (void)state;
    unsetenv("HF_ENDPOINT");
    expect_place("hf://a/b/c d", "https://huggingface.co", "/a/b/resolve/main/c%20d");
    expect_place("hf://models/a/b@v1//c/", "https://huggingface.co", "/a/b/resolve/v1/c");
    expect_place("hf://datasets/a/b@x%2Fy", "https://huggingface.co",
                 "/datasets/a/b/resolve/x%2Fy/");
    expect_place("hf://a/b@refs/pr/7/c", "https://huggingface.co", "/a/b/resolve/refs%2Fpr%2F7/c");
    expect_place("hf://a/b@refs/convert/parquet", "https://huggingface.co",
                 "/a/b/resolve/refs%2Fconvert%2Fparquet/");
    expect_place("hf://a/b@refs/heads/c", "https://huggingface.co", "/a/b/resolve/refs/heads/c");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_no_place(wrong[i]);
    setenv("HF_ENDPOINT", "https://hub.org/prefix//", 1);
    expect_place("hf://a/b/c", "https://hub.org", "/prefix/a/b/resolve/main/c");
    struct rfs_account *account = plain_account();
    assert_int_equal(rfs_bucket_of(account, "hf://a/b/c", &place), 0);
    assert_string_equal(place.api, "https://hub.org/prefix/api/models/a/b");
    assert_true(rfs_bucket_has(&place, "https://hub.org/x") && rfs_bucket_has(&place, place.base));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(rfs_bucket_has(&place, others[i]));
    rfs_bucket_free(&place);
    give_account(account);
    unsetenv("HF_ENDPOINT");
}

static void expect_next(const char *link, bool good, const char *want)
{
    char next[16];

    assert_int_equal(rfs_listing_next(link, next, sizeof next), good);
    assert_string_equal(next, want);
}

#define ID40 "0123456789abcdef0123456789abcdef01234567"
#define ID64 ID40 "0123456789abcdef01234567"
#define FILE_OF(size, rest) "{\"type\": \"file\", \"path\": \"a/b\", \"size\": " size ", " rest "}"

static void lists_of_hubs(void **state)
{
    static const struct {
        const char *text, *etag; /* NULL: it is refused */
    } cases[] = {
        {FILE_OF("7", "\"oid\": \"" ID40 "\", \"lfs\": null, \"x\": [{}]"), "\"" ID40 "\""},
        {FILE_OF("7", "\"lfs\": {\"size\": 7, \"oid\": \"" ID64 "\"}, \"oid\": \"" ID40 "\""),
         "\"" ID64 "\""},
        {FILE_OF("7", "\"oid\": \"" ID40 "\", \"lfs\": {\"size\": 8, \"oid\": \"" ID64 "\"}"),
         NULL},
        {FILE_OF("7", "\"oid\": \"" ID40 "\", \"lfs\": {\"size\": 7}"), NULL},
        {FILE_OF("7", "\"oid\": \"" ID40 "x\""), NULL},
        {FILE_OF("7", "\"oid\": \"0123\""), NULL},
        {FILE_OF("7", "\"oid\": \"" ID64 "0\""), NULL},
        {FILE_OF("7", "\"lfs\": null"), NULL},
        {FILE_OF("-7", "\"oid\": \"" ID40 "\""), NULL},
        {FILE_OF("9223372036854775808", "\"oid\": \"" ID40 "\""), NULL},
        {"{\"type\": \"file\", \"path\": \"a/b\", \"oid\": \"" ID40 "\"}", NULL},
        {"{\"type\": \"file\", \"size\": 7, \"oid\": \"" ID40 "\"}", NULL},
        {"{\"type\": \"file\", \"path\": \"a/\", \"size\": 7, \"oid\": \"" ID40 "\"}", NULL},
        {"{\"type\": \"file\", \"path\": \"a\\u0000b\", \"size\": 7, \"oid\": \"" ID40 "\"}", NULL},
        {"7", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rfs_remote_listing listing = {0};
        char text[512];

        snprintf(text, sizeof text, "[{\"type\": \"directory\", \"path\": \"a\"}, %s]",
                 cases[i].text);
        assert_int_equal(rfs_listing_tree(text, strlen(text), &listing),
                         cases[i].etag ? 0 : -EINVAL);
        assert_int_equal(listing.n, cases[i].etag ? 1 : 0);
        if (cases[i].etag) {
            assert_string_equal(listing.data[0].name, "a/b");
            assert_string_equal(listing.data[0].etag, cases[i].etag);
            assert_true(listing.data[0].known && listing.data[0].size == 7);
        }
        rfs_remote_listing_free(&listing);
        /* Cut anywhere, it is none. */
        for (size_t n = 0; n < strlen(text); n++) {
            assert_int_equal(rfs_listing_tree(text, n, &listing), -EINVAL);
            rfs_remote_listing_free(&listing);
        }
    }
    expect_next("<https://h/2>; rel=\"next\"", true, "https://h/2");
    expect_next("<https://h/1>; rel=\"prev\", <https://h/3>; a; rel=\"next\"", true, "https://h/3");
    expect_next("<https://h/1>; rel=\"prev\"", true, "");
    expect_next("", true, "");
    expect_next("<https://h/1; rel=\"next\"", false, "");
    expect_next("<https://h/1>; rel=next", false, "");
    expect_next("<https://h/a-long-one>; rel=\"next\"", false, "");
    expect_next("<>; rel=\"next\"", false, "");
}

/* A walk whose jumps repeat is expected to go on: of layers of three tensors, with longer names. */
static void test_jumps_that_repeat(void **state)
{
    static const uint64_t sizes[] = {1 << 20, 3 << 20, 5 << 20};
    struct rfs_object_jumps jumps = {.n = 0};
    uint64_t guesses[RFS_OBJECT_JUMPS_AHEAD], at = 0, most = 0;

    (void)state;
    assert_int_equal(rfs_object_guess_jumps(&jumps, guesses), 0);
    for (unsigned i = 0; i < 300; i++) {
        rfs_object_note_jump(&jumps, at);
        rfs_object_note_jump(&jumps, at + 4096); /* the same place */
        const size_t n = rfs_object_guess_jumps(&jumps, guesses);
        assert_true(i >= 6 || n == 0);
        assert_true(i < 6 || n >= 6);
        for (uint64_t k = 0, next = at; k < n; k++) {
            next += sizes[(i + k) % 3] + (i + k) / 30;
            assert_true(guesses[k] <= next && next - guesses[k] < 4096);
        }
        most = n > most ? n : most;
        at += sizes[i % 3] + i / 30;
    }
    assert_true(most > 50);
    rfs_object_note_jump(&jumps, 7); /* back */
    assert_int_equal(rfs_object_guess_jumps(&jumps, guesses), 0);
}

/* Where tensors of one shape follow each other in each layer, the layer is what repeats. */
static void test_jumps_that_repeat_in_layers_that_do(void **state)
{
    static const uint64_t sizes[] = {4, 4, 1, 1, 9, 9, 9};
    struct rfs_object_jumps jumps = {.n = 0};
    uint64_t guesses[RFS_OBJECT_JUMPS_AHEAD], at = 0;

    (void)state;
    for (unsigned i = 0; i < 200; at += sizes[i++ % 7] << 20) {
        rfs_object_note_jump(&jumps, at);
        const size_t n = rfs_object_guess_jumps(&jumps, guesses);
        /* Once three jumps of the second layer are as those of the first, all guesses are right. */
        assert_true(i < 10 || n >= 6);
        for (uint64_t k = 0, next = at; i >= 10 && k < n; k++) {
            next += sizes[(i + k) % 7] << 20;
            assert_int_equal(guesses[k], next);
        }
    }
}

static void test_jumps_that_do_not(void **state)
{
    struct rfs_object_jumps jumps = {.n = 0};
    uint64_t guesses[RFS_OBJECT_JUMPS_AHEAD], at = 0;

    (void)state;
    for (uint64_t i = 0; i < 200; i++, at += (i * i % 1013 + 1) << 16) {
        rfs_object_note_jump(&jumps, at);
        assert_true(rfs_object_guess_jumps(&jumps, guesses) <= 2);
    }
    rfs_object_note_jump(&jumps, UINT64_MAX - ((uint64_t)2 << 20));
    rfs_object_note_jump(&jumps, UINT64_MAX - ((uint64_t)1 << 20));
    rfs_object_note_jump(&jumps, UINT64_MAX);
    assert_true(rfs_object_guess_jumps(&jumps, guesses) <= 2); /* no number beyond the last */
}

static void tokens_go_to_this_machine_or_by_tls(void **state)
{
    static const char *const good[] = {
        "https://sts.amazonaws.com",
        "http://localhost:1234/x",
        "http://LOCALHOST/",
        "http://127.0.0.1/",
        "http://127.1.2.3:80/",
        "http://[::1]:80/",
        "http://169.254.170.2/v2/x",
        "http://169.254.170.23/v1/credentials",
        "http://[fd00:ec2::23]/v1/credentials",
    };
    static const char *const bad[] = {
        "http://localhost:1@example.com/",
        "http://localhost@example.com/",
        "https://user@sts.amazonaws.com/",
        "http://127.example.com/",
        "http://127.0.0.1.example.com/",
        "http://[::1].example.com/",
        "http://localhost.example.com/",
        "http://169.254.170.2.example.com/",
        "http://169.254.170.2@example.com/",
        "http://169.254.169.254/",
        "http://example.com/",
        "http://0.0.0.0/",
        "ftp://localhost/",
        "localhost/",
        "",
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(rfs_credentials_trusts(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(rfs_credentials_trusts(bad[i]));
}

/* Takes the account that others use, too, and a lane. */
static bool take_both(void *ctx)
{
    const struct rfs_options options = {.anonymous = true};
    const char *const paths[] = {"s3://bucket/a"};
    struct rfs_store *const *of_parent = ctx;
    struct rfs_store *store;
    struct rfs_error err = {0};

    if (rfs_remote_take(&options, paths, 1, &store, &err))
        return false;
    struct rfs_http_lane *lane = rfs_http_take_lane();
    const bool own = !of_parent || (store == *of_parent) == (getpid() == forking_parent);
    rfs_http_give_lane(lane);
    rfs_remote_give(&store);
    return own && lane && !store;
}

/* A child has its own account and lanes: threads of the parent may be in the middle of theirs. */
static void accounts_in_children(void **state)
{
    const struct rfs_options options = {.anonymous = true};
    const char *const paths[] = {"s3://bucket/a"};
    struct rfs_store *store;
    struct rfs_error err = {0};
    int status;

    (void)state;
    if (is_under_valgrind()) /* in a child it calls lost what the parent's threads had */
        skip();
    forking_test(take_both, NULL);
    assert_int_equal(rfs_remote_take(&options, paths, 1, &store, &err), 0);
    forking_test(take_both, &store);
    const pid_t child = fork();
    if (child == 0) {
        alarm(FORKING_SECONDS);
        rfs_remote_give(&store);
        _exit(store ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rfs_remote_give(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jumps_that_repeat),
        cmocka_unit_test(test_jumps_that_repeat_in_layers_that_do),
        cmocka_unit_test(test_jumps_that_do_not),
        cmocka_unit_test(signatures_of_the_documentation),
        cmocka_unit_test(a_signature_of_what_is_sent),
        cmocka_unit_test(checksums_of_parts),
        cmocka_unit_test(the_test_suite_of_version_4),
        cmocka_unit_test(names_are_encoded),
        cmocka_unit_test(shared_files_have_profiles),
        cmocka_unit_test(accounts_of_other_environments_are_others),
        cmocka_unit_test(an_account_keeps_its_environment),
        cmocka_unit_test(metadata_services_give_credentials_for_a_while),
        cmocka_unit_test(tokens_go_to_this_machine_or_by_tls),
        cmocka_unit_test(etags_that_are_lines),
        cmocka_unit_test(pages_of_keys),
        cmocka_unit_test(pages_that_are_none),
        cmocka_unit_test(indexes_of_folders),
        cmocka_unit_test(urls_lead_to_places),
        cmocka_unit_test(lists_of_paths_with_urls),
        cmocka_unit_test(urls_of_hubs),
        cmocka_unit_test(lists_of_hubs),
        cmocka_unit_test(places_that_move),
        cmocka_unit_test(places_of_a_bucket_in_the_path),
        cmocka_unit_test(regions_that_are_none),
        cmocka_unit_test(accounts_in_children),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
