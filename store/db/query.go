package db

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"
)

// querier is a database handle or a transaction.
type querier interface {
	sqlx.QueryerContext
	sqlx.ExecerContext
}

// Query runs statements over a handle or in a transaction, until Ctx ends. Placeholders are ? for both engines.
type Query struct {
	Ctx     context.Context
	Handle  querier
	Dialect Dialect
	*Clock
}

// Get reads the first row into dest; the error is sql.ErrNoRows if there is none.
func (s Query) Get(dest any, query string, args ...any) error {
	return sqlx.GetContext(s.Ctx, s.Handle, dest, sqlx.Rebind(s.Dialect.placeholders(), query), args...)
}

// All reads all rows into the slice dest.
func (s Query) All(dest any, query string, args ...any) error {
	return sqlx.SelectContext(s.Ctx, s.Handle, dest, sqlx.Rebind(s.Dialect.placeholders(), query), args...)
}

// AllIn is All for a query with lists among its arguments, none of which is empty.
func (s Query) AllIn(dest any, query string, args ...any) error {
	query, args, err := sqlx.In(query, args...)
	if err != nil {
		return err
	}
	return s.All(dest, query, args...)
}

// Row returns the first row of a query; its Scan fails with sql.ErrNoRows if there is none.
func (s Query) Row(query string, args ...any) *sqlx.Row {
	return s.Handle.QueryRowxContext(s.Ctx, sqlx.Rebind(s.Dialect.placeholders(), query), args...)
}

// RowOf reads one row into the destinations that fields returns.
func RowOf[T any](q Query, fields func(*T) []any, query string, args ...any) (value T, err error) {
	err = q.Row(query, args...).Scan(fields(&value)...)
	return value, err
}

// RowsOf reads rows, each into the destinations that fields returns.
func RowsOf[T any](q Query, fields func(*T) []any, query string, args ...any) ([]T, error) {
	rows, err := q.Handle.QueryContext(q.Ctx, sqlx.Rebind(q.Dialect.placeholders(), query), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := []T{}
	for rows.Next() {
		var value T
		if err := rows.Scan(fields(&value)...); err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	return list, rows.Err()
}

// Exists reports whether a query returns a row.
func (s Query) Exists(query string, args ...any) (bool, error) {
	var rows []int
	err := s.All(&rows, query, args...)
	return len(rows) > 0, err
}

// Exec executes a statement and returns the number of changed rows.
func (s Query) Exec(query string, args ...any) (int64, error) {
	res, err := s.Handle.ExecContext(s.Ctx, sqlx.Rebind(s.Dialect.placeholders(), query), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// RequireRow executes a statement that must change a row; missed is the error if it changes none.
func (s Query) RequireRow(missed error, query string, args ...any) error {
	n, err := s.Exec(query, args...)
	if err == nil && n == 0 {
		err = missed
	}
	return err
}

// ExecIn is Exec for a statement with lists among its arguments, none of which is empty.
func (s Query) ExecIn(query string, args ...any) (int64, error) {
	query, args, err := sqlx.In(query, args...)
	if err != nil {
		return 0, err
	}
	return s.Exec(query, args...)
}

// ColumnIn returns a condition that the column has one of the values.
func ColumnIn[T any](column string, values []T) (string, []any) {
	if len(values) == 0 {
		return `1 = 0`, nil
	}
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = v
	}
	return column + ` IN (` + strings.Repeat(`, ?`, len(values))[2:] + `)`, args
}

// UpdateEach updates one row for each entry of the map values. set is the text of the statement after UPDATE.
// It can use the table v, with the columns k (a key of the map) and value (the result of the function stored
// for the value of that key). The parameter key is the SQL type of k.
func UpdateEach[K comparable, V any](c *Tx, values map[K]V, stored func(V) int64, set, key string) {
	for keys := range slices.Chunk(slices.Collect(maps.Keys(values)), 1000) { // SQLite accepts at most 32,766 arguments
		args := make([]any, 0, 2*len(keys))
		for _, k := range keys {
			args = append(args, k, stored(values[k]))
		}
		rows := strings.Repeat(`, (CAST(? AS `+key+`), CAST(? AS BIGINT))`, len(keys))[1:]
		c.Do(`WITH v (k, value) AS (VALUES `+rows+`) UPDATE `+set, args...)
	}
}
