// Package volcano names Volcano's controllers and their version, as a tool of this module. Basalt stands where Volcano's scheduler stood;
// a test with the real controllers shows that nothing else of Volcano has to change.
//
// It is a module of its own because its versions of Kubernetes' libraries are not Basalt's. Package bench/stage/local builds the
// program; there is no code here.
package volcano
