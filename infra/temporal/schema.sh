#!/bin/sh
# Creates the databases of the Temporal server, or updates their schemas to the version of this temporal-sql-tool. Does nothing if both are
# current, so it may run before every start. The tool itself reads SQL_HOST, SQL_PORT, SQL_USER and SQL_PASSWORD.
set -eu

export SQL_PLUGIN=postgres12

set_up() {
  temporal-sql-tool --database "$1" create-database
  temporal-sql-tool --database "$1" setup-schema --version 0.0
  temporal-sql-tool --database "$1" update-schema --schema-name "postgresql/v12/$2"
}

set_up temporal temporal
set_up temporal_visibility visibility
echo 'the schemas are current'
