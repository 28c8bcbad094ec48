// Package jaegertest has one test, of traces in a real Jaeger, for make test-jaeger: two processes
// contend for a lock in a real Redis, and what Jaeger's query API says of it is compared with what
// they saw.
package jaegertest
