#!/bin/sh
# Passwords for a new cluster, as lines NAME=VALUE; compose reads them from cluster/.env, and
# `kubectl create secret generic --from-env-file` takes the same file.
#
#     sh cluster/secrets.sh > cluster/.env
set -eu
umask 077

new() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

ray=$(new)
cat <<END
POSTGRES_PASSWORD=$(new)
AWS_ACCESS_KEY_ID=headrace
AWS_SECRET_ACCESS_KEY=$(new)
PREFECT_API_AUTH_STRING=headrace:$(new)
RAY_AUTH_TOKEN=$ray
auth_token=$ray
END
